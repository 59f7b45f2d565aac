"""Import paths of the founding API; the names of `graftline.harbor`."""
