//! Cards of the set DF.

pub mod cards;
