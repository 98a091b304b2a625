"""Names of topics as Kafka's tools take them: a regular expression, or several by comma.

Invariant: a name is included when the whole of it fits.
"""

import re
from collections.abc import Iterable

from ottla.errors import OttlaError


def included(pattern: str, names: Iterable[str]) -> list[str]:
    """The names that a pattern includes."""
    text = pattern.strip().replace(",", "|").replace(" ", "")
    text = text.lstrip("\"'").rstrip("\"'")
    try:
        whole = re.compile(text).fullmatch
    except re.error:
        raise OttlaError(f"{text} is an invalid regex.") from None
    return [name for name in names if whole(name)]
