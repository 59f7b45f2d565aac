"""What is common to stores that are elsewhere: which files go there, and how an artifact comes back.

Files go by the sums of their content. So one that is in several artifacts, or in the next version of one, is sent and kept
once, nothing that is there is ever written over, and what comes back says itself whether it is right.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from graftline.core.build import put_in_place
from graftline.core.errors import DataError, RecordError
from graftline.core.hashing import sha256_file
from graftline.core.record import Record, load_record

FILES_AT_ONCE = 4


def to_be_sent(folder: Path, record: Record) -> Iterator[tuple[str, Path]]:
    """Yield the sum and the place of every file of an artifact, those of equal content once.

    Raises:
        DataError: a file is not there, or of another size than recorded.
    """
    for sha256, name in {file.sha256: name for name, file in record.files.items()}.items():
        path = folder / name
        if not path.is_file() or path.stat().st_size != record.files[name].size_bytes:
            raise DataError(f"{path}: is not what its record says; materialize its asset again")
        yield sha256, path


def fetched(folder: Path, record: Record, get: Callable[[str, Path], None]) -> None:
    """Have the artifact of `record` in `folder`; `get` writes the file of a sum, and is asked for what is not here yet.

    Files that the artifact in place shares with it are linked. What a killed call left is used.
    """
    here = _files_by_sum(folder)

    def fill(partial: Path) -> None:
        for path in sorted(partial.rglob("*"), reverse=True):
            if path.is_file() and path.relative_to(partial).as_posix() not in record.files:
                path.unlink()

        def one(name: str) -> None:
            target, sha256 = partial / name, record.files[name].sha256
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists() and sha256 in here:
                with suppress(OSError):  # where there are no links, it is fetched
                    os.link(here[sha256], target)
            if not target.exists() or sha256_file(target) != sha256:
                target.unlink(missing_ok=True)  # written into, a link would change the artifact in place
                get(sha256, target)

        with ThreadPoolExecutor(FILES_AT_ONCE) as threads:
            list(threads.map(one, record.files))

    put_in_place(folder, record, fill)


def _files_by_sum(folder: Path) -> dict[str, Path]:
    try:
        files = load_record(folder).files
    except RecordError:
        return {}
    return {file.sha256: folder / name for name, file in files.items()}
