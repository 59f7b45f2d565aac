"""The import paths of the founding API; everything here is defined in `graftline.harbor`, `evals`, `optimization`."""
