"""Trained adapters: what the Tinker SDK is given, and a backend of ours that speaks its wire."""
