//! Voltmoth

use crate::game::Creature;

pub const HP: u32 = 60;
pub const STATIC_NET_DAMAGE: u32 = 20;

/// Damage of "Static Net".
pub fn static_net(defender: &Creature) -> u32 {
    // TODO: what the card says
    let _ = defender;
    STATIC_NET_DAMAGE
}
