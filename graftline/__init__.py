"""Verified training data for an ast-grep refactoring agent."""

__version__ = "0.2.0"
