"""What a model said of the state, as a `StateUpdate`: what is too long is clipped, what is no text is refused."""

from collections.abc import Mapping

from graftline.core.errors import DataError
from graftline.rollouts.state.state import LIMITS, StateLimits, StateUpdate, capped

_FIELDS = tuple(StateUpdate.model_fields)
_MAX_SHOWN = 40
_KINDS = ((type(None), "null"), (bool, "true or false"), (int | float, "a number"), (str, "a text"), (list, "a list"))


def state_update_of(tree: object, limits: StateLimits = LIMITS) -> StateUpdate:
    """Return the update that the JSON value `tree` says; null is the same as not given.

    Texts over the cap end in "…"; blank ones, repeats and the first of too many are left out.

    Raises:
        DataError: fields are unknown or of a wrong type; all of them in one message.
    """
    if not isinstance(tree, Mapping):
        raise DataError(f"state update: expected an object with some of {', '.join(_FIELDS)}, got {_kind(tree)}")
    given = {name: value for name, value in tree.items() if value is not None}
    if faults := [fault for name, value in given.items() if (fault := _fault(name, value))]:
        raise DataError(f"state update: {'; '.join(faults)}")
    texts = {
        name: _text(value) if name == "next_focus" else [_text(one) for one in value] for name, value in given.items()
    }
    return StateUpdate.model_validate({name: _plain(value) for name, value in capped(texts, limits).items()})


def _fault(name: object, value: object) -> str:
    if name not in _FIELDS:
        return f"{_short(str(name))}: is not known; expected some of {', '.join(_FIELDS)}"
    if name == "next_focus":
        return "" if isinstance(value, str) else f"next_focus: expected a text, got {_kind(value)}"
    if not isinstance(value, list):
        return f"{name}: expected a list of texts, got {_kind(value)}"
    wrong = [f"{_kind(one)} in place {place}" for place, one in enumerate(value, 1) if not isinstance(one, str)]
    more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
    return f"{name}: expected a list of texts, got {wrong[0]}{more}" if wrong else ""


def _text(value: str) -> str:
    # half a character, as JSON can say it, cannot be stored
    return value.encode("utf-8", "replace").decode("utf-8").strip()


def _plain(value: str | tuple[str, ...]) -> str | list[str]:
    return value if isinstance(value, str) else list(value)


def _kind(value: object) -> str:
    return next((name for kind, name in _KINDS if isinstance(value, kind)), "an object")


def _short(text: str) -> str:
    return repr(text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 1] + "…")
