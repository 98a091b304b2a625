"""The small text files of a data directory: checkpoints, meta.properties, the clean shutdown mark.

Invariant: a file is parsed completely or not at all, and what Kafka or this module wrote is parsed
back to the same values. A truncated file, a wrong count or a value out of range is CorruptText with
its line. An empty checkpoint has no entries: Kafka creates the file before it has content.
"""

import json
import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from ottla.ids import (
    ZERO_UUID,
    BrokerEpoch,
    BrokerId,
    Offset,
    PartitionIndex,
    TopicPartition,
    Uuid,
    topic_name_problem,
)
from ottla.log.errors import CorruptText
from ottla.settings.properties import read_properties

_CHECKPOINT_VERSION: Final = 0
_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_BLANKS: Final = re.compile(r"\s+", re.ASCII)

_META_PROPERTIES_VERSION: Final = 1
_META_PROPERTIES_NAMES: Final = frozenset(("version", "cluster.id", "node.id", "directory.id"))
_RESERVED_DIRECTORY_IDS: Final = 100  # the first ones mean "unassigned", "lost" and so on


def number(text: str, maximum: int, what: str, line: int | None) -> int:
    """Parse a number from 0 to a maximum, with the digits that Java accepts."""
    if not _NUMBER.fullmatch(text):
        raise CorruptText(f"{what}: expected a number, found {text[:40]!a}", line)
    value = int(text)
    if not 0 <= value <= maximum:
        raise CorruptText(f"{what}: {value} is not in 0 to {maximum}", line)
    return value


def read_checkpoint(text: str, columns: int) -> list[tuple[int, list[str]]]:
    """The entries of a checkpoint, each with its line number and its columns."""
    if not text:
        return []
    lines = text.replace("\r\n", "\n").split("\n")
    if lines.pop():
        raise CorruptText("the file is truncated", len(lines) + 1)
    version = number(lines[0], _INT32_MAX, "version", 1)
    if version != _CHECKPOINT_VERSION:
        raise CorruptText(f"unknown version {version}, expected {_CHECKPOINT_VERSION}", 1)
    if len(lines) < 2:
        raise CorruptText("the number of entries is missing", 2)
    expected = number(lines[1], _INT32_MAX, "number of entries", 2)
    entries: list[tuple[int, list[str]]] = []
    for line, entry in enumerate(lines[2:], 3):
        cells = _BLANKS.split(entry)
        if len(cells) != columns or not all(cells):
            raise CorruptText(f"expected {columns} columns, found {entry[:80]!a}", line)
        entries.append((line, cells))
    if len(entries) != expected:
        raise CorruptText(f"expected {expected} entries, found {len(entries)}", 2)
    return entries


def write_checkpoint(entries: Collection[str]) -> str:
    """The text of a checkpoint with one line per entry."""
    return "".join(f"{line}\n" for line in (_CHECKPOINT_VERSION, len(entries), *entries))


def parse_offsets(text: str) -> dict[TopicPartition, Offset]:
    """The offsets of a checkpoint: recovery points, high watermarks, log start offsets."""
    offsets: dict[TopicPartition, Offset] = {}
    for line, (topic, partition, offset) in read_checkpoint(text, 3):
        if problem := topic_name_problem(topic):
            raise CorruptText(problem, line)
        index = PartitionIndex(number(partition, _INT32_MAX, "partition", line))
        key = TopicPartition(topic, index)
        if key in offsets:
            raise CorruptText(f"duplicate entry for {key}", line)
        offsets[key] = Offset(number(offset, _INT64_MAX, "offset", line))
    return offsets


def format_offsets(offsets: Mapping[TopicPartition, Offset]) -> str:
    """The text of an offset checkpoint."""
    return write_checkpoint([f"{p.topic} {p.partition} {offset}" for p, offset in offsets.items()])


@lru_cache(maxsize=64)  # the partitions of a topic have the same text
def parse_partition_metadata(text: str) -> Uuid:
    """The topic id in `partition.metadata`; lines of later versions are ignored."""
    lines = text.replace("\r\n", "\n").split("\n")
    version, topic_id = _value(lines, 1, "version"), _value(lines, 2, "topic_id")
    number(version, _INT32_MAX, "version", 1)
    try:
        uuid = Uuid.parse(topic_id)
    except ValueError as error:
        raise CorruptText(str(error), 2) from None
    if uuid == ZERO_UUID:
        raise CorruptText("the topic id is zero", 2)
    return uuid


def _value(lines: list[str], line: int, name: str) -> str:
    found = re.fullmatch(rf"{name}:\s+(\S+)", lines[line - 1] if line <= len(lines) else "")
    if found is None:
        raise CorruptText(f'expected "{name}: …"', line)
    return found[1]


def format_partition_metadata(topic_id: Uuid) -> str:
    """The text of `partition.metadata`; as in Kafka, without a final line break."""
    assert topic_id != ZERO_UUID
    return f"version: 0\ntopic_id: {topic_id}"


class MetaProperties(NamedTuple):
    """The content of `meta.properties`: the cluster and the broker of a data directory.

    Version 0, of Kafka with ZooKeeper, has broker.id instead of node.id, and every property is
    optional.
    """

    cluster_id: str | None
    node_id: BrokerId | None
    directory_id: Uuid | None = None
    other: tuple[tuple[str, str], ...] = ()  # properties of later versions; kept
    version: int = _META_PROPERTIES_VERSION


def parse_meta_properties(text: str) -> MetaProperties:
    """Parse `meta.properties` of either version."""
    properties = read_properties(text, "meta.properties")
    for problem in properties.problems:
        raise CorruptText(problem.what, problem.origin.line if problem.origin else None)
    values = {entry.name: str(entry.value) for entry in properties.entries}
    lines = {entry.name: entry.origin.line for entry in properties.entries if entry.origin}
    version = number(
        values.get("version", "0").strip(), _INT32_MAX, "version", lines.get("version")
    )
    if version > _META_PROPERTIES_VERSION:
        raise CorruptText(f"unknown version {version}, expected 0 or 1", lines["version"])
    id_name = "node.id" if version else "broker.id"
    if version:
        for name in ("cluster.id", "node.id"):
            if name not in values:
                raise CorruptText(f"{name} is missing")
    node_id = values.get(id_name)
    known = _META_PROPERTIES_NAMES | {id_name}
    return MetaProperties(
        values.get("cluster.id"),
        None if node_id is None else BrokerId(number(node_id, _INT32_MAX, id_name, lines[id_name])),
        _directory_id(values.get("directory.id"), lines.get("directory.id")),
        tuple((name, value) for name, value in values.items() if name not in known),
        version,
    )


def _directory_id(text: str | None, line: int | None) -> Uuid | None:
    if text is None:
        return None
    try:
        uuid = Uuid.parse(text)
    except ValueError as error:
        raise CorruptText(f"directory.id: {error}", line) from None
    if int.from_bytes(uuid, "big") < _RESERVED_DIRECTORY_IDS:
        raise CorruptText(f"directory.id: {uuid} is reserved", line)
    return uuid


def format_meta_properties(meta: MetaProperties) -> str:
    """The text of `meta.properties` in version 1."""
    assert meta.cluster_id is not None
    assert meta.node_id is not None
    pairs = [
        ("version", str(_META_PROPERTIES_VERSION)),
        ("cluster.id", meta.cluster_id),
        ("node.id", str(meta.node_id)),
    ]
    if meta.directory_id is not None:
        pairs.append(("directory.id", str(meta.directory_id)))
    pairs += meta.other
    return "".join(f"{_escaped(name)}={_escaped(value)}\n" for name, value in pairs)


def _escaped(text: str) -> str:
    """Escape a key or a value for java.util.Properties, in ASCII."""
    return "".join(
        character
        if character.isascii() and (character.isalnum() or character in "._-+/")
        else "".join(f"\\u{unit:04x}" for unit in _utf16(character))
        for character in text
    )


def _utf16(character: str) -> tuple[int, ...]:
    units = character.encode("utf-16-be", "surrogatepass")
    return tuple(int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2))


def parse_clean_shutdown(text: str) -> BrokerEpoch | None:
    """The broker epoch in `.kafka_cleanshutdown`; None in the empty file of older Kafkas."""
    if not text:
        return None
    try:
        epoch: Any = json.loads(text)["brokerEpoch"]
    except (ValueError, RecursionError, LookupError, TypeError):
        raise CorruptText('expected {"version":0,"brokerEpoch":…}') from None
    if type(epoch) is not int or not -1 <= epoch <= _INT64_MAX:
        raise CorruptText("the broker epoch is not a number >= -1")
    return BrokerEpoch(epoch)


def format_clean_shutdown(broker_epoch: BrokerEpoch) -> str:
    """The text of `.kafka_cleanshutdown`."""
    return f'{{"version":0,"brokerEpoch":{broker_epoch}}}'
