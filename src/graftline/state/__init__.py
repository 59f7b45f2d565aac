"""The structured memory of an agent between the steps of one task."""
