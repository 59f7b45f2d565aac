"""The entry point of the code location."""

import gc

# a million objects that stay as long as the process: looking for garbage among them takes a tenth of the time to load
gc.disable()
try:
    from orchestration.build import build_definitions

    defs = build_definitions()
finally:
    gc.enable()
