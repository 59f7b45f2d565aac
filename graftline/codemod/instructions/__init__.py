"""Edits in an engineer's words, and back: what is asked for, and a reader that does it without a language model."""
