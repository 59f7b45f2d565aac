"""Tasks and trials as the Harbor of PyPI has them (harbor 0.25.0, task format 1.4), read and written without its package."""
