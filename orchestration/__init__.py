"""The code location: everything that is declared, put together."""
