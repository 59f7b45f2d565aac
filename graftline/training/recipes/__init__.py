"""What is trained, and by which loss: one module for each recipe."""
