"""The steps of the schema; one that was released is never changed."""
