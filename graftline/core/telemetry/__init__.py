"""What can be seen of the platform while it works: figures, logs, and their way to other systems."""
