"""The stage behind the key of an asset, whose name may have a dataset in it."""

import dagster as dg

_OF_ONE_DATASET = ("raw", "normalized")


def stage_of(key: dg.AssetKey) -> str:
    """Return the stage that makes the asset."""
    if key.path[0] == "reports":
        return key.to_user_string()
    return next((stage for stage in _OF_ONE_DATASET if key.path[0].startswith(f"{stage}_")), key.path[0])
