"""Environments of our own, each as a task app and as the entrypoint of a deployment."""
