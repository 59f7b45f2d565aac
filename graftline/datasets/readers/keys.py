"""Identifiers of edits and labels, from what tells the rows of a dataset apart."""

from hashlib import blake2b


def row_id(name: str, *key: str) -> str:
    """Return `<name>:<16 hex digits>` for the row of dataset `name` with the natural key `key`."""
    # each part with its length, so that parts never run into one another
    text = "".join([f"{len(part)}:{part}" for part in key])
    return f"{name}:{blake2b(text.encode('utf-8', 'surrogatepass'), digest_size=8).hexdigest()}"
