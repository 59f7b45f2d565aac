//! Mosswyrm

use crate::game::{Creature, Energy};

pub const HP: u32 = 110;
pub const MOST_HEALED: u32 = 40;

/// Damage that is healed.
pub fn old_growth(creature: &Creature) -> u32 {
    (10 * creature.energies.iter().filter(|energy| **energy == Energy::Grass).count() as u32).min(MOST_HEALED)
}
