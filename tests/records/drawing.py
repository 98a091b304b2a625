"""Hypothesis strategies for records, batches and damaged batches."""

from collections.abc import Sequence
from typing import NamedTuple

from hypothesis import strategies as st

from ottla.records.builder import BatchBuilder
from ottla.records.compression import Compression

INT64 = st.integers(-(2**63), 2**63 - 1)


class Drawn(NamedTuple):
    """The fields of one record, as a producer passes them."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


payloads = st.none() | st.binary(max_size=200)
header_keys = st.text(max_size=10)
headers = st.lists(st.tuples(header_keys, st.none() | st.binary(max_size=20)), max_size=4)
timestamps = st.integers(0, 2**42) | INT64
drawn_records = st.builds(Drawn, timestamps, payloads, payloads, headers.map(tuple))
drawn_batches = st.lists(drawn_records, min_size=1, max_size=30)


def build(
    drawn: Sequence[Drawn],
    compression: Compression = Compression.NONE,
    *,
    base_offset: int = 0,
    transactional: bool = False,
    control: bool = False,
) -> bytes:
    """Build one batch of all records."""
    builder = BatchBuilder(2**31 - 1, compression)
    for record in drawn:
        assert builder.append(*record)
    return builder.build(base_offset=base_offset, transactional=transactional, control=control)


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """The bytes with a few of them changed, removed or added."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        match draw(st.sampled_from(["flip", "set", "cut", "drop", "add"])):
            case "flip" if data:
                data[at] ^= 1 << draw(st.integers(0, 7))
            case "set" if data:
                data[at] = draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF]))
            case "cut":
                del data[at:]
            case "drop":
                del data[at : at + draw(st.integers(1, 8))]
            case _:
                data[at:at] = draw(st.binary(min_size=1, max_size=8))
    return bytes(data)
