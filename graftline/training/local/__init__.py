"""A backend for the Tinker SDK on this machine: transformers and peft behind the wire of `tinker` 0.38."""
