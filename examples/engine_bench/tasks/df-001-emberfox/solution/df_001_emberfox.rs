//! Emberfox

use crate::game::Board;

pub const HP: u32 = 90;
pub const EMBER_COUNT_DAMAGE: u32 = 30;

/// Damage of "Ember Count".
pub fn ember_count(board: &Board) -> u32 {
    EMBER_COUNT_DAMAGE + 10 * board.mine.iter().filter(|creature| creature.is_delta).count() as u32
}
