"""JSON files of `kafka-reassign-partitions`, and its JSON output.

Invariant: errors have Kafka's messages, except those of Java's JSON parser.
"""

from collections.abc import Iterable, Mapping, Sequence
from json import JSONDecodeError, dumps, loads
from typing import Any, Final, NamedTuple, cast

from ottla.client.admin.log_dirs import Replica
from ottla.client.partitions import Partition, partition
from ottla.errors import OttlaError

ANY: Final = "any"
"""Lets the broker choose the directory."""

_VERSION: Final = 1


class ReassignmentFile(NamedTuple):
    """The rows of a file, and the directories that it names."""

    rows: Sequence[tuple[Partition, Sequence[int]]]
    directories: Mapping[Replica, str]

    @property
    def replicas(self) -> dict[Partition, Sequence[int]]:
        """The replicas by partition."""
        return dict(self.rows)

    def checked(self) -> "ReassignmentFile":
        """Return it if it can be executed; raises OttlaError."""
        if not self.rows:
            raise OttlaError("Partition reassignment list cannot be empty")
        if any(not replicas for _, replicas in self.rows):
            raise OttlaError("Partition replica list cannot be empty")
        if twice := _twice(key for key, _ in self.rows):
            names = ",".join(str(partition(*one)) for one in twice)
            raise OttlaError(f"Partition reassignment contains duplicate topic partitions: {names}")
        repeated = [
            f"{partition(*key)} contains multiple entries for {','.join(map(str, found))}"
            for key, replicas in self.rows
            if (found := _twice(replicas))
        ]
        if repeated:
            raise OttlaError(
                f"Partition replica lists may not contain duplicate entries: {'. '.join(repeated)}"
            )
        return self


def _twice(values: Iterable[Any]) -> list[Any]:
    seen: set[Any] = set()
    found: dict[Any, None] = {}
    for one in values:
        if one in seen:
            found[one] = None
        seen.add(one)
    return [*found]


def read_reassignment(text: str) -> ReassignmentFile:
    """Parse the file of --reassignment-json-file; raises OttlaError."""
    whole = _object(_parsed(text))
    _check_version(whole)
    rows: list[tuple[Partition, Sequence[int]]] = []
    directories: dict[Replica, str] = {}
    for one in _list(whole.get("partitions", []), "partitions"):
        row = _object(one)
        topic, index = _text(row, "topic"), _number(row, "partition")
        replicas = [_whole(each, "replicas") for each in _list(_field(row, "replicas"), "replicas")]
        paths: list[Any] = [ANY] * len(replicas)
        if "log_dirs" in row:
            paths = _list(row["log_dirs"], "log_dirs")
        if len(paths) != len(replicas):
            raise OttlaError(
                f"Size of replicas list {_java_list(replicas)} is different from size of log dirs "
                f"list {_java_list(paths)} for partition {partition(topic, index)}"
            )
        rows.append((partition(topic, index), replicas))
        for broker, path in zip(replicas, paths, strict=True):
            if path != ANY:
                directories[Replica(topic, index, broker)] = str(path)
    return ReassignmentFile(rows, directories)


def read_topics(text: str) -> list[str]:
    """Parse the file of --topics-to-move-json-file; raises OttlaError."""
    try:
        whole = _object(loads(text))
    except (JSONDecodeError, RecursionError):
        raise OttlaError("The input string is not a valid JSON") from None
    _check_version(whole)
    found = [_text(_object(one), "topic") for one in _list(whole.get("topics", []), "topics")]
    if twice := _twice(found):
        raise OttlaError(
            f"List of topics to reassign contains duplicate entries: {_java_list(twice)}"
        )
    return found


def read_brokers(text: str) -> list[int]:
    """Parse --broker-list; raises OttlaError."""
    try:
        found = [int(one) for one in text.split(",")]
    except ValueError:
        wrong = next(one for one in text.split(",") if not one.lstrip("+-").isdigit())
        raise OttlaError(f'For input string: "{wrong}"') from None
    if twice := _twice(found):
        raise OttlaError(f"Broker list contains duplicate entries: {_java_list(twice)}")
    return found


def formatted(
    replicas: Mapping[Partition, Sequence[int]], directories: Mapping[Replica, str]
) -> str:
    """Return assignments in the format of the file."""
    rows = [
        {
            "topic": topic,
            "partition": index,
            "replicas": [*replicas[topic, index]],
            "log_dirs": [
                directories.get(Replica(topic, index, one), ANY) for one in replicas[topic, index]
            ],
        }
        for topic, index in sorted(replicas)
    ]
    value = {"version": _VERSION, "partitions": rows}
    return dumps(value, separators=(",", ":"), ensure_ascii=False)


def _parsed(text: str) -> Any:
    try:
        return loads(text)
    except JSONDecodeError as error:
        raise OttlaError(f"{error.msg}; line: {error.lineno}, column: {error.colno}") from None
    except RecursionError:
        raise OttlaError("The JSON is nested too deeply") from None


def _check_version(whole: Mapping[str, Any]) -> None:
    version: object = whole.get("version", _VERSION)
    if isinstance(version, bool) or version != _VERSION:
        raise OttlaError(f"Not supported version field value {version}")


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise OttlaError(f"Expected JSON object, received {dumps(value)}")
    return cast("dict[str, Any]", value)


def _list(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise OttlaError(f"Expected JSON array as {name}, received {dumps(value)}")
    return cast("list[Any]", value)


def _field(row: Mapping[str, Any], name: str) -> Any:
    if name not in row:
        raise OttlaError(f"No such field exists: `{name}`")
    return row[name]


def _text(row: Mapping[str, Any], name: str) -> str:
    value = _field(row, name)
    if not isinstance(value, str):
        raise OttlaError(f"Expected `String` value, received {dumps(value)}")
    return value


def _number(row: Mapping[str, Any], name: str) -> int:
    return _whole(_field(row, name), name)


def _whole(value: Any, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 31:
        raise OttlaError(f"Expected `Integer` value as {name}, received {dumps(value)}")
    return value


def _java_list(values: Iterable[Any]) -> str:
    return f"[{', '.join(map(str, values))}]"
