"""The store of examples, made of the verified steps of the training split."""

from collections.abc import Iterator

from graftline.core.hashing import digest
from graftline.core.paths import Paths
from graftline.core.record import RECORD_NAME, load_record
from graftline.pipeline.exporting import stored_attempts
from graftline.rollouts.teachers.examples import Examples, VerifiedStep
from graftline.rollouts.teachers.prompt import Shot


def refresh_examples(paths: Paths, examples: Examples) -> bool:
    """Bring `examples` up to date with what is stored; return whether anything was to be done.

    Raises:
        RecordError: an artifact is not what it was when it was written, or the store cannot be used.
    """
    raw = paths.data / "trajectories" / "raw"
    folders = sorted(path.parent for path in raw.glob(f"*/train/[!.]*/{RECORD_NAME}"))
    if not folders:
        return False
    identity = digest({paths.relative(folder): load_record(folder).identity for folder in folders})
    return examples.rebuild(identity, _verified_steps(paths))


def _verified_steps(paths: Paths) -> Iterator[VerifiedStep]:
    for attempt in stored_attempts(paths, "train"):
        for step in attempt.path if attempt.is_verified else ():
            said, done = step.model_output, step.sandbox_result
            # of a verified step
            assert said.action is not None
            assert done is not None
            yield VerifiedStep(
                id=f"{attempt.key}:{step.step}",
                task_id=attempt.task_id,
                group=attempt.group,
                split="train",
                shot=Shot(
                    language=attempt.language,
                    instruction=attempt.instruction or "Change the text as it should be.",
                    code=step.prompt.text,
                    think=said.think,
                    action=said.action,
                    state_update=said.state_update,
                ),
                after=done.after or "",
            )
