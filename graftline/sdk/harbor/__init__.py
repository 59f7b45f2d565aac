"""The names of `graftline.harbor`, under which other programs import them."""
