"""Positions of `ottla pipeline run --from`."""

import json

import pytest

from cases import Cases
from ottla.pipeline.spec.loading import load_text
from ottla.pipeline.spec.model import Pipeline
from ottla.pipeline.starting_position import BadPosition, start_from

PIPELINE = """\
name: p
sources:
  orders: {topic: [orders, returns], text: line, start: latest}
  stock: {topic: stock, text: line, options: {maxOffsetsPerTrigger: 5}}
  every: {pattern: ^logs, text: line}
  prices: {parquet: prices}
sinks: [{from: orders, console: true}]
"""
WRONG = {
    "yesterday": '"yesterday" is not earliest, latest, a time such as',
    "2026-01-01T00:00:00": "has no time zone: add Z for UTC",
    "{": "the offsets are not JSON",
    '{"stok": {"0": 1}}': 'no source names topic "stok"; did you mean stock?',
    '{"stock": 1}': 'topic "stock": expected offsets such as {"0": 12}',
    '{"stock": {}}': 'topic "stock": expected offsets such as {"0": 12}',
    '{"stock": {"0": "1"}}': "\"0\": '1' is not an offset of a partition",
    '{"stock": {"0": true}}': '"0": True is not an offset of a partition',
    '{"stock": {"0": -3}}': '"0": -3 is not an offset of a partition',
    '{"stock": {"x": 1}}': '"x": 1 is not an offset of a partition',
    '{"orders": {"0": 1}}': 'source "orders" also reads topic "returns": add its offsets',
}


def pipeline() -> Pipeline:
    return load_text(PIPELINE, "p.yaml", environment={}, read_file=str).pipeline


def test_name_or_time_is_the_start_of_every_topic() -> None:
    for text in ("earliest", "latest", "2026-01-01T00:00:00Z"):
        sources = start_from(pipeline(), f" {text} ").sources
        assert [sources[name].start for name in ("orders", "stock", "every")] == [text] * 3
        assert sources["prices"] == pipeline().sources["prices"], "a side table has no start"


def test_offsets_go_to_the_sources_of_their_topics() -> None:
    offsets = {"orders": {"0": 12}, "returns": {"0": -2, "1": -1}}
    sources = start_from(pipeline(), json.dumps(offsets)).sources
    assert json.loads(sources["orders"].options["startingOffsets"]) == offsets
    assert sources["orders"].start == "earliest", "latest would be a second position"
    assert sources["stock"] == pipeline().sources["stock"]
    moved = start_from(pipeline(), '{"stock": {"0": 7}}').sources["stock"]
    assert moved.options == {"maxOffsetsPerTrigger": "5", "startingOffsets": '{"stock": {"0": 7}}'}


def test_wrong_positions_have_one_clear_message() -> None:
    cases = Cases()
    for text, message in WRONG.items():
        with cases.case(text):
            with pytest.raises(BadPosition) as error:
                start_from(pipeline(), text)
            assert message in str(error.value)
    cases.check()
