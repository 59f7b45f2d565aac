"""The queue of attempts to be made, and the workers that take from it."""
