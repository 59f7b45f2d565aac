"""Edits made checkable."""
