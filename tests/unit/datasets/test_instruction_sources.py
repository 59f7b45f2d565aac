"""Where instructions come from, in records that say it by tags, as those of version 0.1.0 do."""

from collections.abc import Callable

import pytest

from graftline.datasets.edit import Edit


@pytest.mark.parametrize(
    ("tags", "fields"),
    [
        (("release_pairs", "license:MIT", "instruction:derived"), ("none", False, "no_instruction")),
        (("release_pairs", "instruction:none", "comment-only"), ("none", False, "no_instruction")),
        (("release_pairs", "instruction:rule", "detail:lazy"), ("rule", True, "reader")),
        (("synthetic", "template:wrap_function"), ("rule", True, "template")),
        (("commitpackft", "license:MIT", "lang:Python", "repo:a/b"), ("commit", None, None)),
        (("agentpack", "hunk", "agent:claude"), ("commit", None, None)),
        (("agentpack", "hunk", "agent:claude", "instruction:derived"), ("none", False, "no_instruction")),
        (("oce_dataft", "style:lazy", "model:qwen3", "seed-commit"), ("model", None, None)),
        (("marv", "type:rename-method", "votes:2/2"), ("rule", None, None)),
        ((), ("human", True, "written")),
    ],
)
def test_a_record_without_the_fields_has_what_its_tags_say(
    edit: Callable[..., Edit], tags: tuple[str, ...], fields: tuple[str, bool | None, str | None]
) -> None:
    stored = edit("a", tags=tags)
    assert (stored.instruction_source, stored.answerable, stored.answerable_by) == fields
