"""Names under which other programs import this."""
