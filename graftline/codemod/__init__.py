"""ast-grep rules from examples: tree differences, anti-unification, induction, grading."""
