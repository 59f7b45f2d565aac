#[cfg(test)]
mod eval_tests {
    use super::*;
    use crate::game::Board;
    use crate::game::Creature;

    #[test]
    fn counts_every_delta_creature() {
        let board = Board { mine: vec![Creature::delta(90), Creature::plain(60), Creature::delta(40)], theirs: vec![] };
        assert_eq!(ember_count(&board), 50);
    }

    #[test]
    fn creatures_of_the_opponent_do_not_count() {
        let board = Board { mine: vec![], theirs: vec![Creature::delta(90)] };
        assert_eq!(ember_count(&board), EMBER_COUNT_DAMAGE);
    }

    #[test]
    fn keeps_the_printed_figures() {
        assert_eq!((HP, EMBER_COUNT_DAMAGE), (90, 30));
    }
}
