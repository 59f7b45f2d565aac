"""Synthetic edits: template families, filled with names found in real snippets and applied in the sandbox."""

from graftline.datasets.synthetic.template_edits import synthesize

__all__ = ["synthesize"]
