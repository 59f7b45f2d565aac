"""The two forms of an action: a pattern with its rewrite, or a whole rule with its fix."""

import json
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    SerializerFunctionWrapHandler,
    Tag,
    TypeAdapter,
    model_serializer,
    model_validator,
)

MAX_TEXT = 16_384
"""Characters of a pattern or a rewrite."""
MAX_RULE = 65_536
"""Characters of a rule as JSON."""


class _Action(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    @model_serializer(mode="wrap")
    def _omit_unset(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # models learn from these texts
        return {key: value for key, value in dump(self).items() if value is not None}


class PatternAction(_Action):
    """Replace every outermost match of a pattern."""

    pattern: str = Field(min_length=1, max_length=MAX_TEXT)
    rewrite: str = Field(max_length=MAX_TEXT)
    selector: str | None = None
    """Kind of the node inside the pattern that is the match; the rest of the pattern is its context."""
    strictness: Literal["cst", "smart", "ast", "relaxed", "signature"] | None = None


class RuleAction(_Action):
    """Apply the fix of one ast-grep rule (https://ast-grep.github.io/reference/yaml.html)."""

    rule: dict[str, Any]
    fix: str | dict[str, Any]
    constraints: dict[str, Any] | None = None
    transform: dict[str, Any] | None = None
    utils: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _is_bounded(self) -> Self:
        try:
            size = len(json.dumps(self.model_dump(), ensure_ascii=False))
        except RecursionError:
            raise ValueError("rule is nested too deep") from None
        if size > MAX_RULE:
            raise ValueError(f"rule of {size} characters as JSON; at most {MAX_RULE} are accepted")
        return self


def _form(value: Any) -> str:
    keys = value if isinstance(value, dict) else value.__class__.model_fields if isinstance(value, BaseModel) else ()
    return "rule" if "rule" in keys else "pattern"


Action = Annotated[Annotated[PatternAction, Tag("pattern")] | Annotated[RuleAction, Tag("rule")], Discriminator(_form)]
"""What an agent proposes; told apart by its keys."""

ACTION: TypeAdapter[PatternAction | RuleAction] = TypeAdapter(Action)


def template_of(fix: Any) -> str:
    """Return the text that the `fix` of a rule writes, with the names of its variables."""
    return fix if isinstance(fix, str) else str(fix.get("template", ""))


def rule_of(action: PatternAction | RuleAction) -> dict[str, Any]:
    """Return the ast-grep rule object that `action` means: `rule`, `fix` and whatever else it has.

    A pattern action means what the rule means, not what `ast-grep run` does: the two differ in undefined
    variables (an error here, an empty text there).
    """
    if isinstance(action, RuleAction):
        return action.model_dump()
    pattern: str | dict[str, str] = action.pattern
    if action.selector or action.strictness:
        detail = {"context": action.pattern, "selector": action.selector, "strictness": action.strictness}
        pattern = {key: value for key, value in detail.items() if value}
    return {"rule": {"pattern": pattern}, "fix": action.rewrite}
