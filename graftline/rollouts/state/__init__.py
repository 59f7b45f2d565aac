"""The structured memory of an agent between the steps of one task.

`merge`, `render` and `summarize_history` work on a `State`; a `StateStore` keeps many of them, and an `AttemptLog` how far
their attempts came; `state_update_of` reads what a model says.
"""

from graftline.rollouts.state.attempts import AttemptLog, AttemptStatus
from graftline.rollouts.state.state import (
    State,
    StateUpdate,
    merge,
    render,
    state_update_of,
    summarize_history,
)
from graftline.rollouts.state.store import Change, Entry, StateStore

__all__ = [
    "AttemptLog",
    "AttemptStatus",
    "Change",
    "Entry",
    "State",
    "StateStore",
    "StateUpdate",
    "merge",
    "render",
    "state_update_of",
    "summarize_history",
]
