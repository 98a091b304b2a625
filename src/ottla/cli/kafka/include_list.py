"""Names of topics as Kafka's tools take them: a regular expression, or several by comma.

Invariant: a name is included when the whole of it fits.
"""

import re
from collections.abc import Iterable

from ottla.cli.kafka.java_patterns import compiled


def include_pattern(text: str) -> re.Pattern[str]:
    """What names have to fit, in which a comma stands for `|`; BadPattern when it is none."""
    plain = text.strip().replace(",", "|").replace(" ", "")
    return compiled(plain.lstrip("\"'").rstrip("\"'"))


def included(pattern: str, names: Iterable[str]) -> list[str]:
    """The names that a pattern includes."""
    whole = include_pattern(pattern).fullmatch
    return [name for name in names if whole(name)]
