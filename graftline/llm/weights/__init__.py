"""Weights of language models, named by digest: where they are to be had, fetched, checked, and in another format."""
