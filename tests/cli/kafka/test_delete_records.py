"""The JSON file of `kafka-delete-records`."""

import pytest

from cases import each_case
from ottla.cli.kafka.delete_records import BadOffsets, parse_offsets

ROW = '{"topic": "t", "partition": 0, "offset": 5}'


def test_offset_file_is_parsed_per_partition() -> None:
    whole = f'{{"partitions": [{ROW}, {{"topic": "t", "partition": 1, "offset": -1}}]}}'
    assert parse_offsets(whole) == {("t", 0): 5, ("t", 1): -1}
    assert parse_offsets('{"partitions": [], "version": 1}') == {}


@each_case(
    ("text", "why"),
    [
        ("", "not a valid JSON"),
        ("{", "not a valid JSON"),
        ("[" * 100_000, "not a valid JSON"),
        ("[1]", "Expected JSON object"),
        ("{}", "Missing partitions field"),
        ('{"version": 2, "partitions": []}', "Not supported version field value 2"),
        ('{"version": true, "partitions": []}', "Not supported version"),
        ('{"partitions": 5}', "is not a list"),
        ('{"partitions": [5]}', "Expected JSON object"),
        ('{"partitions": [{"topic": "t", "partition": 0}]}', "No such field exists: `offset`"),
        ('{"partitions": [{"topic": 1, "partition": 0, "offset": 1}]}', "as topic"),
        ('{"partitions": [{"topic": "t", "partition": "0", "offset": 1}]}', "as partition"),
        (
            '{"partitions": [{"topic": "t", "partition": -1, "offset": 1}]}',
            "Expected `Integer` as partition, received -1",
        ),
        (
            '{"partitions": [{"topic": "t", "partition": 99999999999, "offset": 1}]}',
            "Expected `Integer` as partition, received 99999999999",
        ),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "offset": 99999999999999999999}]}',
            "Expected `Long` as offset, received 99999999999999999999",
        ),
        (f'{{"partitions": [{ROW}, {ROW}]}}', "duplicate topic partitions: t-0"),
    ],
)
def test_invalid_offset_file_is_refused(text: str, why: str) -> None:
    with pytest.raises(BadOffsets, match=why):
        parse_offsets(text)
