"""The steps; one that was released is never changed."""
