//! Tidecrab

pub const HP: u32 = 70;
pub const SHELL_GUARD: u32 = 20;

/// Damage that is left of an attack.
pub fn shell_guard(damage: u32) -> u32 {
    // TODO: what the card says
    damage
}
