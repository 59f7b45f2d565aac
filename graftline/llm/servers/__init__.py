"""Servers of language models that are ours: started, watched, started again."""
