"""Texts found by what they are like: vectors of texts, and where they are kept."""
