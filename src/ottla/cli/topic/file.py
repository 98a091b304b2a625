"""Parses a YAML file of topics.

Invariant: the file is understood completely: an unknown key, a value of the wrong type and a
duplicate topic raise an error with the line.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from ottla.cli.failures import Misused
from ottla.ids import topic_name_problem

_KEYS: Final = ("name", "partitions", "replication_factor", "configs")
_TAG: Final = "tag:yaml.org,2002:"
_COUNT_MAX: Final = {"partitions": (1 << 31) - 1, "replication_factor": (1 << 15) - 1}


class BadTopicFile(Misused):
    """The file is not valid."""


@dataclass(frozen=True, slots=True)
class WantedTopic:
    """A topic as it should be; None is the cluster's default."""

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    configs: Mapping[str, str | None] = field(default_factory=dict[str, "str | None"])
    """None for a setting that should not be set on the topic."""

    line: int = 0


def read_topics(text: str, file: str) -> list[WantedTopic]:
    """Parse the topics of a file; `file` is its name in messages."""
    try:
        return _Reader(file).topics(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = file if mark is None else f"{file}, line {mark.line + 1}"
        why = error.problem or error.context or "not YAML"
        raise BadTopicFile(f"{where}: {why}") from None
    except yaml.YAMLError as error:
        raise BadTopicFile(f"{file}: {error}") from None
    except RecursionError:
        raise BadTopicFile(f"{file}: nested too deeply") from None


@dataclass(frozen=True, slots=True)
class _Reader:
    file: str

    def topics(self, text: str) -> list[WantedTopic]:
        root: Node | None = yaml.SafeLoader(text).get_single_node()
        if root is None:
            raise BadTopicFile(f"{self.file} is empty: expected topics: [{{name: …}}]")
        if isinstance(root, MappingNode):
            fields = self._fields(root, ("topics",), "the file")
            root = fields.get("topics")
            if root is None:
                raise BadTopicFile(f"{self.file} has no topics: expected topics: [{{name: …}}]")
        if not isinstance(root, SequenceNode):
            raise self._wrong(root, "expected a list of topics")
        found: dict[str, WantedTopic] = {}
        for node in root.value:
            topic = self._topic(node)
            if topic.name in found:
                first = found[topic.name].line
                raise self._wrong(node, f"topic {topic.name!r} is already in line {first}")
            found[topic.name] = topic
        return [*found.values()]

    def _topic(self, node: Node) -> WantedTopic:
        if not isinstance(node, MappingNode):
            raise self._wrong(node, "expected a topic, as {name: orders, partitions: 3}")
        fields = self._fields(node, _KEYS, "a topic")
        if "name" not in fields:
            raise self._wrong(node, "missing topic name")
        name = self._name(fields["name"])
        return WantedTopic(
            name,
            self._count(fields, "partitions"),
            self._count(fields, "replication_factor"),
            self._configs(fields.get("configs")),
            _line(node),
        )

    def _name(self, node: Node) -> str:
        if not isinstance(node, ScalarNode) or node.tag == f"{_TAG}null":
            raise self._wrong(node, "the topic name must be text")
        name = str(node.value)
        if problem := topic_name_problem(name):
            raise self._wrong(node, problem.rstrip("."))
        return name

    def _count(self, fields: Mapping[str, Node], key: str) -> int | None:
        node = fields.get(key)
        if node is None or node.tag == f"{_TAG}null":
            return None
        value = _integer(node)
        if value is None or not 1 <= value <= _COUNT_MAX[key]:
            raise self._wrong(node, f"{key} must be a number of 1 or more")
        return value

    def _configs(self, node: Node | None) -> dict[str, str | None]:
        if node is None or node.tag == f"{_TAG}null":
            return {}
        if not isinstance(node, MappingNode):
            raise self._wrong(node, "expected settings, as {retention.ms: 1000}")
        return {name: self._value(name, one) for name, one in self._fields(node).items()}

    def _value(self, name: str, node: Node) -> str | None:
        """Return the text of a setting's value, as a broker expects it."""
        if isinstance(node, SequenceNode):
            return ",".join(self._word(name, one) for one in node.value)
        return None if node.tag == f"{_TAG}null" else self._word(name, node)

    def _word(self, name: str, node: Node) -> str:
        if not isinstance(node, ScalarNode):
            raise self._wrong(
                node, (f"the value of {name} must be text, a number, or a list of these")
            )
        if node.tag == f"{_TAG}bool":
            return "true" if node.value.lower() in ("true", "yes", "on") else "false"
        whole = _integer(node)
        return str(node.value) if whole is None else str(whole)

    def _fields(
        self, node: MappingNode, known: tuple[str, ...] | None = None, of: str = "a topic"
    ) -> dict[str, Node]:
        """Return the values by key; each key once."""
        found: dict[str, Node] = {}
        for key, value in _pairs(node):
            if not isinstance(key, ScalarNode):
                raise self._wrong(key, "keys must be text")
            name = str(key.value)
            if known is not None and name not in known:
                keys = ", ".join(known)
                raise self._wrong(key, f"unknown key {name!r} of {of}: use {keys}")
            if name in found:
                raise self._wrong(key, f"duplicate key {name!r}")
            found[name] = value
        return found

    def _wrong(self, node: Node, why: str) -> BadTopicFile:
        return BadTopicFile(f"{self.file}, line {_line(node)}: {why}")


def _pairs(node: MappingNode) -> Iterator[tuple[Node, Node]]:
    yield from node.value


def _line(node: Node) -> int:
    return int(node.start_mark.line) + 1


def _integer(node: Node) -> int | None:
    """Parse an integer in any YAML notation; None if it is not one."""
    if not isinstance(node, ScalarNode) or node.tag != f"{_TAG}int":
        return None
    text = str(node.value).replace("_", "")
    try:
        return int(text, 8 if text.lstrip("+-").startswith("0") and text.isdecimal() else 0)
    except ValueError:  # YAML also has base 60 numbers, which nobody means
        return None
