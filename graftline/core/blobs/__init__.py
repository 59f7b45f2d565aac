"""Objects: files that are kept under names outside the checkout, in a bucket or on another disk."""
