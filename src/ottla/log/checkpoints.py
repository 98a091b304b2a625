"""The small texts of a data directory: checkpoints, identities, the mark of a clean stop.

Invariant: a text is read whole or not at all, and a text that Kafka or this module wrote is read
back to what it was made of. What is cut off, counted wrongly or out of range is CorruptText with
its line. An empty checkpoint holds nothing: Kafka creates the file before it has content.
"""

import json
import re
from collections.abc import Collection, Mapping
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
_RESERVED_DIRECTORY_IDS: Final = 100  # the first ones stand for "unassigned", "lost" and the like


def number(text: str, maximum: int, what: str, line: int | None) -> int:
    """A number from 0 to a maximum, in the digits that Java reads."""
    if not _NUMBER.fullmatch(text):
        raise CorruptText(f"{what}: expected a number, found {text[:40]!a}", line)
    value = int(text)
    if not 0 <= value <= maximum:
        raise CorruptText(f"{what}: {value} is not in 0 to {maximum}", line)
    return value


def read_checkpoint(text: str, columns: int) -> list[tuple[int, list[str]]]:
    """The entries of a checkpoint, each with its line and cut into columns."""
    if not text:
        return []
    lines = text.replace("\r\n", "\n").split("\n")
    if lines.pop():
        raise CorruptText("the end is missing", len(lines) + 1)
    version = number(lines[0], _INT32_MAX, "version", 1)
    if version != _CHECKPOINT_VERSION:
        raise CorruptText(f"version {version} is not known, only {_CHECKPOINT_VERSION}", 1)
    if len(lines) < 2:
        raise CorruptText("the number of entries is missing", 2)
    expected = number(lines[1], _INT32_MAX, "number of entries", 2)
    entries: list[tuple[int, list[str]]] = []
    for line, entry in enumerate(lines[2:], 3):
        cells = _BLANKS.split(entry)
        if len(cells) != columns or not all(cells):
            raise CorruptText(f"expected {columns} words, found {entry[:80]!a}", line)
        entries.append((line, cells))
    if len(entries) != expected:
        raise CorruptText(f"{expected} entries are announced, {len(entries)} follow", 2)
    return entries


def write_checkpoint(entries: Collection[str]) -> str:
    """The text of a checkpoint with a line for each entry."""
    return "".join(f"{line}\n" for line in (_CHECKPOINT_VERSION, len(entries), *entries))


def parse_offsets(text: str) -> dict[TopicPartition, Offset]:
    """What a checkpoint of offsets holds: recovery points, high watermarks, log starts."""
    offsets: dict[TopicPartition, Offset] = {}
    for line, (topic, partition, offset) in read_checkpoint(text, 3):
        if problem := topic_name_problem(topic):
            raise CorruptText(problem, line)
        index = PartitionIndex(number(partition, _INT32_MAX, "partition", line))
        key = TopicPartition(topic, index)
        if key in offsets:
            raise CorruptText(f"{key} is there twice", line)
        offsets[key] = Offset(number(offset, _INT64_MAX, "offset", line))
    return offsets


def format_offsets(offsets: Mapping[TopicPartition, Offset]) -> str:
    """The text of a checkpoint of offsets."""
    return write_checkpoint([f"{p.topic} {p.partition} {offset}" for p, offset in offsets.items()])


def parse_partition_metadata(text: str) -> Uuid:
    """The topic's id in `partition.metadata`; lines of later versions are not looked at."""
    lines = text.replace("\r\n", "\n").split("\n")
    version, topic_id = _value(lines, 1, "version"), _value(lines, 2, "topic_id")
    number(version, _INT32_MAX, "version", 1)
    try:
        uuid = Uuid.parse(topic_id)
    except ValueError as error:
        raise CorruptText(str(error), 2) from None
    if uuid == ZERO_UUID:
        raise CorruptText("the topic's id is zero, which stands for none", 2)
    return uuid


def _value(lines: list[str], line: int, name: str) -> str:
    found = re.fullmatch(rf"{name}:\s+(\S+)", lines[line - 1] if line <= len(lines) else "")
    if found is None:
        raise CorruptText(f'expected "{name}: …"', line)
    return found[1]


def format_partition_metadata(topic_id: Uuid) -> str:
    """The text of `partition.metadata`; as Kafka's, without a line end at the end."""
    assert topic_id != ZERO_UUID
    return f"version: 0\ntopic_id: {topic_id}"


class MetaProperties(NamedTuple):
    """Whose data directory it is: `meta.properties`.

    Version 0, of the ZooKeeper era, says broker.id instead of node.id and may lack any of them.
    """

    cluster_id: str | None
    node_id: BrokerId | None
    directory_id: Uuid | None = None
    other: tuple[tuple[str, str], ...] = ()  # what later versions added; kept
    version: int = _META_PROPERTIES_VERSION


def parse_meta_properties(text: str) -> MetaProperties:
    """What `meta.properties` says, of either version."""
    properties = read_properties(text, "meta.properties")
    for problem in properties.problems:
        raise CorruptText(problem.what, problem.origin.line if problem.origin else None)
    values = {entry.name: str(entry.value) for entry in properties.entries}
    lines = {entry.name: entry.origin.line for entry in properties.entries if entry.origin}
    version = number(
        values.get("version", "0").strip(), _INT32_MAX, "version", lines.get("version")
    )
    if version > _META_PROPERTIES_VERSION:
        raise CorruptText(f"version {version} is not known, only 0 and 1", lines["version"])
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
    """The text of `meta.properties` in version 1, whatever was read."""
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
    """A key or a value as java.util.Properties reads it, in ASCII."""
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
    """The broker epoch in `.kafka_cleanshutdown`; None in the empty file of earlier Kafkas."""
    if not text:
        return None
    try:
        epoch: Any = json.loads(text)["brokerEpoch"]
    except (ValueError, RecursionError, LookupError, TypeError):
        raise CorruptText('expected {"version":0,"brokerEpoch":…}') from None
    if type(epoch) is not int or not -1 <= epoch <= _INT64_MAX:
        raise CorruptText("the broker epoch is not a number from -1 on")
    return BrokerEpoch(epoch)


def format_clean_shutdown(broker_epoch: BrokerEpoch) -> str:
    """The text of `.kafka_cleanshutdown`."""
    return f'{{"version":0,"brokerEpoch":{broker_epoch}}}'
