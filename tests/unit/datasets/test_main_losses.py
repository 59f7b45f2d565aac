"""When a dataset is said to lose most of its rows to one reason, and what is said."""

import pytest

from graftline.datasets.losses import MainLoss, main_loss


@pytest.mark.parametrize(
    ("counts", "lost"),
    [
        # half of the rows is not more than half
        ({"rows_in": 4, "rows": 2, "dropped.license": 2}, None),
        ({"rows_in": 5, "rows": 2, "dropped.license": 3}, MainLoss("pack", "license", 3, 5, True)),
        # a row may hold several edits: 148 rows were read, and 336 edits in them
        ({"rows_in": 148, "rows": 0, "dropped.license": 336}, MainLoss("pack", "license", 336, 336, True)),
        # labels are no losses
        ({"rows_in": 10, "rows": 1, "labels": 5, "dropped.too_long": 4}, None),
        # all are lost, but to no single reason
        ({"rows_in": 4, "rows": 0, "dropped.license": 2, "dropped.too_long": 2}, None),
        # rejected while they were fetched
        ({"rows": 148, "files": 1, "not_kept.several_files": 732}, MainLoss("pack", "several_files", 732, 880, False)),
        ({"rows_in": 0, "rows": 0, "labels": 0}, None),
    ],
)
def test_more_than_half_of_the_rows_rejected_for_one_reason_is_a_main_loss(
    counts: dict[str, int], lost: MainLoss | None
) -> None:
    assert main_loss("pack", counts) == lost


@pytest.mark.parametrize(
    ("loss", "says"),
    [
        (
            MainLoss("pack", "license", 336, 336, True),
            "dataset 'pack': 336 of 336 rows (100%) are rejected as license; state `license` or `licenses` of the dataset"
            " in configs/datasets.yaml, or allow what its rows state in `cleaning.licenses`",
        ),
        (
            MainLoss("pack", "unparsable", 6001, 10000, True),
            "dataset 'pack': 6,001 of 10,000 rows (60%) are rejected as unparsable; `graftline data show pack"
            " --rejected unparsable` shows some of them",
        ),
        (
            MainLoss("pack", "several_files", 732, 900, False),
            "dataset 'pack': 732 of 900 rows (81%) are rejected as several_files; they were not stored, which `keep: all`"
            " of the dataset in configs/datasets.yaml changes",
        ),
    ],
)
def test_a_main_loss_says_how_many_of_how_many_and_what_to_do(loss: MainLoss, says: str) -> None:
    assert str(loss) == says
