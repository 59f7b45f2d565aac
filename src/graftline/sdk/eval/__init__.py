"""Import paths of the founding API."""
