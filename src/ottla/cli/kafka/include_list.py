"""Include lists of Kafka's tools: regular expressions of topics, separated by commas.

Invariant: a topic is included if its whole name matches.
"""

import re
from collections.abc import Iterable

from ottla.cli.kafka.java_patterns import compiled


def include_pattern(text: str) -> re.Pattern[str]:
    """Compile an include list, in which a comma means `|`; raises BadPattern if it is invalid."""
    plain = text.strip().replace(",", "|").replace(" ", "")
    return compiled(plain.lstrip("\"'").rstrip("\"'"))


def included(pattern: str, names: Iterable[str]) -> list[str]:
    """Return the names that an include list matches."""
    whole = include_pattern(pattern).fullmatch
    return [name for name in names if whole(name)]
