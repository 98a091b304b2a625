"""Filters of `kafka-get-offsets`: partitions and time.

Invariant: a topic matches if an expression matches its whole name. The end of a range of partitions
is exclusive.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from ottla.cli.kafka.include_list import include_pattern
from ottla.client.admin.records import OffsetAt
from ottla.client.arguments import OFFSET_MAX
from ottla.errors import OttlaError

_RULE: Final = re.compile(r"([^:,]*)(?::(?:([0-9]*)|(?:([0-9]*)-([0-9]*))))?")
_PLACES: Final = {one.name.lower().replace("_", "-"): one for one in OffsetAt}
_TIME_FORMS: Final = (
    "-1 or latest / -2 or earliest / -3 or max-timestamp / -4 or earliest-local / "
    "-5 or latest-tiered / -6 or earliest-pending-upload, or a specified long format timestamp"
)


class BadFilter(OttlaError):
    """A filter or a time is invalid."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Topics and which of their partitions."""

    topic: re.Pattern[str]
    has_number: Callable[[int], bool]

    def fits(self, topic: str, number: int) -> bool:
        """Whether a partition matches."""
        return self.has_topic(topic) and self.has_number(number)

    def has_topic(self, topic: str) -> bool:
        """Whether the topic matches."""
        return self.topic.fullmatch(topic) is not None


def rules_of(topic: str | None, partitions: str | None) -> list[Rule]:
    """Return the rule of --topic and --partitions."""
    if not partitions:
        return [Rule(_expression(topic), lambda _: True)]
    try:
        numbers = {int(one) for one in partitions.split(",")}
    except ValueError:
        raise BadFilter(
            "--partitions expects a comma separated list of numeric partition ids, but received: "
            f"{partitions}"
        ) from None
    return [Rule(_expression(topic), numbers.__contains__)]


def parse_rules(text: str) -> list[Rule]:
    """Parse the rules of --topic-partitions."""
    return [_rule(one) for one in text.split(",")]


def _rule(text: str) -> Rule:
    found = _RULE.fullmatch(text)
    if found is None:
        raise BadFilter(
            f"org.apache.kafka.tools.TerseException: Invalid rule specification: {text}"
        )
    topic, number, first, end = found.groups()
    if number:
        wanted = int(number)
        return Rule(_expression(topic), lambda one: one == wanted)
    least, limit = int(first or 0), int(end) if end else None
    return Rule(_expression(topic), lambda one: one >= least and (limit is None or one < limit))


def _expression(text: str | None) -> re.Pattern[str]:
    """Compile an expression of topics, in which a comma means `|` as in all of Kafka's tools."""
    return include_pattern(text or ".*")


def wanted(
    rules: Iterable[Rule], topics: Iterable[tuple[str, Iterable[int]]]
) -> list[tuple[str, int]]:
    """Return the partitions that match, sorted by their names as text."""
    ones = [*rules]
    found = {
        (topic, number)
        for topic, numbers in topics
        for number in numbers
        if any(rule.fits(topic, number) for rule in ones)
    }
    return sorted(found, key=lambda one: f"{one[0]}-{one[1]}")


def parse_place(text: str) -> OffsetAt | int:
    """Parse the value of --time."""
    if text in _PLACES:
        return _PLACES[text]
    sign, digits = (text[0], text[1:]) if text[:1] in ("+", "-") else ("", text)
    if not (digits.isascii() and digits.isdecimal()) or int(digits) > OFFSET_MAX:
        raise BadFilter(f"Malformed time argument {text}. Please use {_TIME_FORMS}")
    number = int(sign + digits)
    if number >= 0:
        return number
    try:
        return OffsetAt(number)
    except ValueError:
        raise BadFilter(f"Malformed time argument {text}. Please use {_TIME_FORMS}") from None
