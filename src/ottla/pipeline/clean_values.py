"""The pattern of JSON values that cannot be dead letters of a source.

A query that writes the dead letters of a source needs only the others. Most values match, and to
match one takes a fifth of the processor time of passing it to Spark and parsing it there.

Invariant: Spark parses each value that matches to a row without an error. A value that does not
match may be correct as well: it has an escaped character, an unusual number or another order.
"""

import re
from collections.abc import Mapping
from typing import Final

from ottla.pipeline.spec.model import Source
from ottla.pipeline.spec.schema_ddl import Column, parse_columns

_CHARACTER: Final = (  # also of two and three bytes in UTF-8
    r"[ !#-\[\]-~]|[\xc2-\xdf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}"
)
_NUMBER: Final = r"-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,15})?"
_TIME: Final = (
    r'"[12][0-9]{3}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])'
    r"T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
    r'(?:Z|[+-](?:0[0-9]|1[0-7]):[0-5][0-9])?"'
)
_PATTERNS: Final = {
    "STRING": f'"(?:{_CHARACTER})*"',
    "BOOLEAN": "(?:true|false)",
    "INT": "-?(?:0|[1-9][0-9]{0,8})",
    "INTEGER": "-?(?:0|[1-9][0-9]{0,8})",
    "BIGINT": "-?(?:0|[1-9][0-9]{0,17})",
    "LONG": "-?(?:0|[1-9][0-9]{0,17})",
    "DOUBLE": _NUMBER,
    "TIMESTAMP": _TIME,
}
"""Some values of each type; RE2 matches them in any order of the fields at the same cost."""

_CHANGES: Final = re.compile("legacy|json", re.IGNORECASE)
"""Settings with such names can change what Spark accepts, as the options of a source can."""

_NAME: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")


def clean_pattern(source: Source, spark: Mapping[str, str]) -> str | None:
    """Return the pattern, which pyarrow matches; None if Spark has to parse all values.

    `spark` are the settings of the session.
    """
    if source.json is None:
        return None
    if source.parse or any(_CHANGES.search(name) for name in spark):
        return None
    if any(one.otherwise == "dead_letter" for one in source.expect.values()):
        return None
    columns = parse_columns(source.json)
    if not all(column.type in _PATTERNS and {*column.name} <= _NAME for column in columns):
        return None
    if any(column.is_required for column in columns):
        fields = r",\s?".join(_field(column) for column in columns)  # all of them, in this order
    else:
        one = "(?:" + "|".join(_field(column) for column in columns) + ")"
        fields = rf"{one}(?:,\s?{one})*"
    return rf"\A\{{{fields}\}}\z"


def _field(column: Column) -> str:
    value = _PATTERNS[column.type]
    return rf'"{column.name}":\s?' + (value if column.is_required else f"(?:{value}|null)")
