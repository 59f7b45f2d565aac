"""What must hold of stored training data and adapters, as questions whose answer is a list of faults."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path

from graftline.core.errors import DataError
from graftline.pipeline.checks import MOST_FAULTS
from graftline.pipeline.lineage import Lineage
from graftline.pipeline.stages.sft_dataset import lineage_recipes
from graftline.pipeline.stages.trained_adapter import STEPS
from graftline.training.adapter import check_adapter
from graftline.training.data_sources import HELD_OUT, TRAIN
from graftline.training.runs import read_steps


def unfit_rows(lineage: Lineage) -> list[str]:
    """Return the recipes without rows, and those of which a row is trained on and held out."""
    faults: list[str] = []
    for name, folder in _stored(lineage, lineage.paths.training_set):
        lineage.verified(folder, "sft_dataset")
        train, held_out = ({*(folder / file).read_bytes().splitlines()} for file in (TRAIN, HELD_OUT))
        if not train:
            faults.append(f"recipe {name!r} has no row to train on")
        if both := train & held_out:
            faults.append(f"recipe {name!r}: {len(both)} rows are trained on and held out")
    return faults[:MOST_FAULTS]


def broken_adapters(lineage: Lineage) -> list[str]:
    """Return the stored adapters that PEFT would not load, and those whose loss is no number."""
    faults: list[str] = []
    for name, folder in _stored(lineage, lineage.paths.adapter):
        lineage.verified(folder, "trained_adapter")
        try:
            check_adapter(folder)
        except DataError as error:
            faults.append(str(error))
        faults += [
            f"adapter {name!r}: the loss of step {step.step + 1} is {step.loss}"
            for step in read_steps(folder / STEPS)
            if not math.isfinite(step.loss)
        ][:1]
    return faults[:MOST_FAULTS]


def _stored(lineage: Lineage, folder_of: Callable[[str], Path]) -> Iterator[tuple[str, Path]]:
    """Yield the recipes of the lineage that have an artifact in the folder that `folder_of` returns, and that folder."""
    for name in lineage_recipes(lineage.paths):
        lineage.bring(folder := folder_of(name))
        if folder.exists():
            yield name, folder
