//! Stonecub

pub const HP: u32 = 80;
pub const ROCK_DAMAGE: u32 = 20;

/// Damage of "Rock Throws"; `true` is heads.
pub fn rock_throws(coins: [bool; 3]) -> u32 {
    ROCK_DAMAGE * coins.iter().filter(|heads| **heads).count() as u32
}
