#[cfg(test)]
mod eval_tests {
    use super::*;
    use crate::game::Creature;
    use crate::game::Energy;

    #[test]
    fn heals_by_grass_energy() {
        let mut wyrm = Creature::plain(HP);
        wyrm.energies = vec![Energy::Grass, Energy::Fire, Energy::Grass];
        assert_eq!(old_growth(&wyrm), 20);
    }

    #[test]
    fn heals_no_more_than_forty() {
        let mut wyrm = Creature::plain(HP);
        wyrm.energies = vec![Energy::Grass; 6];
        assert_eq!(old_growth(&wyrm), MOST_HEALED);
    }
}
