"""The agent: an instruction and a repository become a change for somebody to review."""
