//! Mosswyrm

use crate::game::Creature;

pub const HP: u32 = 110;
pub const MOST_HEALED: u32 = 40;

/// Damage that is healed.
pub fn old_growth(creature: &Creature) -> u32 {
    // TODO: what the card says
    let _ = creature;
    0
}
