//! What cards look at.

/// What attacks are paid with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Energy {
    Fire,
    Grass,
    Lightning,
    Water,
}

/// A creature in play.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Creature {
    pub hp: u32,
    pub is_delta: bool,
    pub retreat_cost: u32,
    pub energies: Vec<Energy>,
}

impl Creature {
    /// A creature without a delta sign.
    pub fn plain(hp: u32) -> Self {
        Self { hp, is_delta: false, retreat_cost: 1, energies: Vec::new() }
    }

    /// A creature with a delta sign.
    pub fn delta(hp: u32) -> Self {
        Self { is_delta: true, ..Self::plain(hp) }
    }
}

/// Both sides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Board {
    pub mine: Vec<Creature>,
    pub theirs: Vec<Creature>,
}
