#[cfg(test)]
mod eval_tests {
    use super::*;

    #[test]
    fn reduces_damage() {
        assert_eq!(shell_guard(50), 30);
    }

    #[test]
    fn never_heals() {
        assert_eq!(shell_guard(10), 0);
    }

    #[test]
    fn nothing_stays_nothing() {
        assert_eq!(shell_guard(0), 0);
    }
}
