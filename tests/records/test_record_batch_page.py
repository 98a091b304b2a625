"""The bytes on the page of the record batch format equal those that the code writes."""

import re
from pathlib import Path

from ottla.records._kernel import OffsetMap
from ottla.records.batch import Batch
from ottla.records.builder import BatchBuilder
from ottla.records.compaction import CompactionPass, EmptyBatch, compact_records
from ottla.records.control import EndTxnMarker, marker_batch

PAGE = Path(__file__).parents[2] / "docs" / "formats" / "record-batch.md"


def test_page_shows_the_bytes_that_the_code_writes() -> None:
    builder = BatchBuilder()
    builder.append(1_700_000_000_000, b"user-1", b"hello", [("trace", b"\x01\x02")])
    builder.append(1_700_000_000_250, None, None)
    batch = builder.build(
        base_offset=42, leader_epoch=3, producer_id=1000, producer_epoch=0, base_sequence=7
    )
    marker = marker_batch(
        EndTxnMarker(commit=True, coordinator_epoch=5),
        producer_id=1000,
        producer_epoch=0,
        timestamp=1_700_000_000_500,
        base_offset=44,
        leader_epoch=3,
    )
    tombstone = BatchBuilder()
    tombstone.append(1_700_000_000_750, b"user-1", None)
    seen = Batch(tombstone.build(base_offset=45, leader_epoch=3))
    keys = OffsetMap(2400, 0.9, bytes(16))
    this = CompactionPass(keys, 46, 1_700_000_001_000, 86_400_000, 1 << 20)
    with_horizon = bytes(compact_records(seen, this, EmptyBatch.DELETE).data)
    blocks = re.findall(r"^```\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert [bytes.fromhex(block) for block in blocks] == [batch, marker, with_horizon]


def test_page_tables_cover_the_bytes_in_order() -> None:
    """Each row's bytes follow those of the row before, up to the end of the batch."""
    text = PAGE.read_text()
    section = text[text.index("## A batch of two records") : text.index("## Attributes")]
    (block,) = re.findall(r"^```\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    cells = [line.split("|")[1:-2] for line in section.splitlines() if line.startswith("| ")]
    rows = [cell[-1] for cell in cells]
    named = "".join("".join(re.findall(r"`([0-9a-f ]+)`", row)) for row in rows)
    assert bytes.fromhex(named) == bytes.fromhex(block)
