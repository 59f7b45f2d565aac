"""The names under which other programs import environments; all are defined in `graftline.harbor`, `evals`, `optimization`."""
