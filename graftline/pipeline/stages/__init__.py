"""The stages of the lineage, one module each; `table` says in which order, and over what."""
