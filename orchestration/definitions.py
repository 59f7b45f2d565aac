"""The entry point of the code location."""

import gc

from orchestration.refusals import explain_refusals

explain_refusals()
# a million objects that stay as long as the process: looking for garbage among them takes a tenth of the time to load
collects = gc.isenabled()
gc.disable()
try:
    from orchestration.build import build_definitions

    defs = build_definitions()
finally:
    if collects:
        gc.enable()
