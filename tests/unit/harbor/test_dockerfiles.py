"""Dockerfiles that cannot be built say why, whoever has written them."""

from pathlib import Path

import pytest

from graftline.core.errors import DataError
from graftline.harbor.executors.images import ImageStore

DOUBLED = "".join(f"ENV V{n}=${{V{n - 1}}}${{V{n - 1}}}\n" for n in range(1, 40))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("COPY --chmod=u+x a /a", "COPY --chmod=u+x: executor 'local' takes modes such as 755 alone"),
        ("COPY", "names no source and target; write COPY SOURCE TARGET"),
        ("COPY $NONE", "names no source and target; write COPY SOURCE TARGET"),
        ("ENV A=it's", "Dockerfile: ENV A=it's: No closing quotation"),
        ("FROM $NONE", "image '': no root file system stands for it here"),
        pytest.param(f"ENV V0=01234567\n{DOUBLED}", "its variables come to more than 131072 characters", id="doubled"),
        pytest.param(f"COPY {'[' * 100_000} /a", "is longer than any path, 4096 bytes", id="nested"),
    ],
)
def test_it_is_said_what_cannot_be_built(tmp_path: Path, lines: str, message: str) -> None:
    store = ImageStore(tmp_path, {}, "none", 60.0, 256)
    with pytest.raises(DataError) as caught:
        store.build(f"FROM scratch\n{lines}\n", {"a": (b"", 0o644)})
    assert message in str(caught.value)
