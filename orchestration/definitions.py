"""The entry point of the code location."""

from orchestration.build import build_definitions

defs = build_definitions()
