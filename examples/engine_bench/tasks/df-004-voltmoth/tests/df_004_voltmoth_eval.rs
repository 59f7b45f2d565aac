#[cfg(test)]
mod eval_tests {
    use super::*;
    use crate::game::Creature;

    #[test]
    fn doubles_against_heavy_creatures() {
        let mut defender = Creature::plain(80);
        defender.retreat_cost = 2;
        assert_eq!(static_net(&defender), 40);
    }

    #[test]
    fn hits_light_creatures_plainly() {
        assert_eq!(static_net(&Creature::plain(80)), 20);
    }

    #[test]
    fn more_than_two_is_heavy_too() {
        let mut defender = Creature::plain(80);
        defender.retreat_cost = 4;
        assert_eq!(static_net(&defender), 40);
    }
}
