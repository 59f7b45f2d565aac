"""Trajectories as training takes them: one JSON object per line, one module per format."""
