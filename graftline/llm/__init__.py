"""Served language models: the pool that asks them, and the processes that serve them."""
