//! A very small trading card game, for cards to be implemented in.

pub mod df;
pub mod game;
