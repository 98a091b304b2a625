"""Compaction in a broker process, by the child process that it starts."""

import time
from pathlib import Path

from broker.test_bad_input import batch, create, end_of, fetch_request, now_ms, produce
from broker.wire import Wire
from judges.ottla_broker import OttlaBroker
from ottla.protocol.messages.fetch import FetchResponse
from ottla.records.batch import batches
from ottla.records.builder import BatchBuilder

SETTINGS = ("node.id=1", "log.cleaner.backoff.ms=100", "log.roll.ms=100")


def test_compaction_keeps_the_last_record_of_each_key(tmp_path: Path) -> None:
    with OttlaBroker(tmp_path, *SETTINGS) as broker:
        broker.start()
        with Wire(broker.port) as wire:
            create(wire, "t", cleanup_policy="compact", min_cleanable_dirty_ratio="0")
            for number in range(10):
                builder = BatchBuilder()
                builder.append(now_ms(), b"key", b"%d" % number)
                assert produce(wire, builder.build(), topic="t") == (0, number)
                time.sleep(0.03)
            deadline = time.monotonic() + 60
            # Each new record rolls the segment before it, which makes that segment cleanable.
            while [offset for offset in remaining_offsets(wire) if offset < 10] != [9]:
                assert time.monotonic() < deadline, broker.log.read_text()
                time.sleep(0.2)
                produce(wire, batch(b"x"), topic="t")
        assert broker.stop() == 0
        assert 'event="log cleaned" ' in broker.log.read_text()
        assert "Traceback" not in broker.log.read_text()


def remaining_offsets(wire: Wire) -> list[int]:
    """Return the offsets of the records that are left."""
    offsets: list[int] = []
    position, end = 0, end_of(wire, "t")
    while position < end:
        answer = wire.ask(fetch_request(position, "t"), FetchResponse, 11)
        for one in batches(answer.responses[0].partitions[0].records or b""):
            offsets += [record.offset for record in one.records() if record.offset >= position]
            position = one.header.next_offset
    return offsets
