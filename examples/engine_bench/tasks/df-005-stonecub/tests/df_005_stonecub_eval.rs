#[cfg(test)]
mod eval_tests {
    use super::*;

    #[test]
    fn counts_heads() {
        assert_eq!(rock_throws([true, false, true]), 40);
    }

    #[test]
    fn all_heads_are_sixty() {
        assert_eq!(rock_throws([true; 3]), 60);
    }

    #[test]
    fn all_tails_are_nothing() {
        assert_eq!(rock_throws([false; 3]), 0);
    }
}
