"""Changes that span a repository: where they come from, which are mechanical, and in which split each is."""
