"""Content of gzip files: whole, in several parts, cut off or damaged at any byte, and much larger than they look."""

import gzip
import io
import random
import tracemalloc
import zlib

import pytest

from graftline.datasets.edit import Rejection
from graftline.datasets.formats import decompress_gzip, lines_of

MEBIBYTE = 1 << 20
TEXT = "".join(random.Random(0).choices("abcdefgh \n", k=50_000)).encode()
ROWS = b"".join(b'{"number": %d, "text": "%d"}\n' % (number, number**7) for number in range(4000))


def read(packed: bytes) -> tuple[bytes, str]:
    """Return the content, and what is wrong with the rest."""
    content = b""
    try:
        for piece in decompress_gzip(io.BytesIO(packed)):
            content += piece
    except (zlib.error, EOFError) as error:
        return content, str(error)
    return content, ""


def read_by_the_byte(packed: bytes) -> bytes:
    """Return the content of one gzip stream, as far as the decoder of the standard library comes."""
    decoder, content = zlib.decompressobj(wbits=31), b""
    try:
        for at in range(len(packed)):
            content += decoder.decompress(packed[at : at + 1])
    except zlib.error:
        pass
    return content


CUT_OFF = "the compressed file ends before its end-of-stream marker"


@pytest.mark.parametrize("size", [0, 1, 1000, MEBIBYTE - 1, MEBIBYTE, MEBIBYTE + 1, 3 * MEBIBYTE])
def test_a_whole_file_is_read_whole(size: int) -> None:
    content = (TEXT * 70)[:size]
    assert read(gzip.compress(content, 1)) == (content, "")


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([b"", b"a"], id="an empty one first"),
        pytest.param([b"a", b"", b""], id="empty ones last"),
        pytest.param([TEXT, b"b", TEXT], id="large ones"),
        pytest.param([b"%d\n" % number for number in range(3000)], id="thousands of small ones"),
    ],
)
def test_several_streams_in_one_file_are_one_content(parts: list[bytes]) -> None:
    assert read(b"".join(map(gzip.compress, parts))) == (b"".join(parts), "")


@pytest.mark.parametrize("zeros", [1, 511, 200_000])
def test_zeros_after_a_stream_are_padding(zeros: int) -> None:
    packed = gzip.compress(b"a", mtime=0) + bytes(zeros)
    assert (read(packed), read(packed + gzip.compress(b"b", mtime=0))) == ((b"a", ""), (b"ab", ""))


def test_what_follows_a_stream_and_is_none_is_damage() -> None:
    content, fault = read(gzip.compress(b"a", mtime=0) + b"garbage")
    assert (content, "incorrect header check" in fault) == (b"a", True)


@pytest.mark.parametrize("seed", range(20))
def test_a_cut_file_keeps_every_byte_before_the_cut(seed: int) -> None:
    packed = gzip.compress(ROWS, mtime=0)
    cut = packed[: random.Random(seed).randrange(1, len(packed))]
    assert read(cut) == (read_by_the_byte(cut), CUT_OFF)


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_file_keeps_every_byte_before_the_damage(seed: int) -> None:
    packed = bytearray(gzip.compress(ROWS, mtime=0))
    at = random.Random(seed).randrange(10, len(packed))
    packed[at] ^= 0xFF
    content, fault = read(bytes(packed))
    assert (content, fault != "") == (read_by_the_byte(bytes(packed)), True)


def test_a_cut_is_found_where_a_piece_of_the_content_ends_as_well() -> None:
    # a piece of content has 1 MiB, and a byte of packed zeros makes about a thousand: these are the cuts that leave
    # some of them in the decoder when it has given the last full piece
    packed = gzip.compress(bytes(8 * MEBIBYTE), mtime=0)
    decoder, length, cuts = zlib.decompressobj(wbits=31), 0, {}
    for at in range(len(packed) - 8):
        length += len(decoder.decompress(packed[at : at + 1]))
        if length > MEBIBYTE and length % MEBIBYTE < 1100:
            cuts[at + 1] = length
    assert len(cuts) >= 7
    assert {cut: (len(read(packed[:cut])[0]), read(packed[:cut])[1]) for cut in cuts} == {
        cut: (length, CUT_OFF) for cut, length in cuts.items()
    }


def test_damage_in_a_later_stream_leaves_the_earlier_ones() -> None:
    packed = gzip.compress(TEXT, mtime=0) + gzip.compress(b"second", mtime=0) + gzip.compress(b"third", mtime=0)[:-3]
    assert read(packed) == (TEXT + b"secondthird", CUT_OFF)


def test_a_wrong_checksum_is_told_after_the_content() -> None:
    packed = bytearray(gzip.compress(TEXT, mtime=0))
    packed[-8] ^= 1  # the checksum, before the four bytes of the length
    content, fault = read(bytes(packed))
    assert (content, "incorrect data check" in fault) == (TEXT, True)


def test_a_file_that_unpacks_to_a_thousandfold_takes_a_few_megabytes() -> None:
    # 64 MiB of zeros in 64 kB, three times over
    packed = gzip.compress(bytes(64 * MEBIBYTE), mtime=0) * 3
    length, largest = 0, 0
    tracemalloc.start()
    try:
        for piece in decompress_gzip(io.BytesIO(packed)):
            length, largest = length + len(piece), max(largest, len(piece))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (length, largest) == (192 * MEBIBYTE, MEBIBYTE)
    assert peak < 5 * MEBIBYTE


def test_damage_in_a_long_line_is_found_in_the_time_of_a_test() -> None:
    # what the decoder gives of the damaged piece by the byte is not added to the line by the byte: it copies 30 GB
    line = b"".join(b"%x" % random.Random(number).getrandbits(4000) for number in range(1900))
    packed = bytearray(gzip.compress(line + b"\n" + line, 1))
    packed[-30_000] ^= 0xFF
    [first, last] = lines_of(io.BytesIO(bytes(packed)), "a.jsonl.gz", 4 * MEBIBYTE)
    assert (first.content, isinstance(last.content, Rejection)) == (line, True)
