"""Evaluations: every seed of a task app once, by a Harbor service or from here, with a result that is the same for both."""
