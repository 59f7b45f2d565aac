"""The command `graftline`: a module for each group of commands."""
