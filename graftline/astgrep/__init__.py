"""Actions: the ast-grep rewrites an agent may propose, and the one door to ast-grep."""
