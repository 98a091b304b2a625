"""The forms of an answer: a table for people, JSON or YAML for programs.

Invariant: the keys of JSON and YAML are the same and stable; only the table is free to change.
"""

from collections.abc import Sequence
from enum import StrEnum

TYPE_CHECKING = False  # typing is imported where it is needed: this comes before all
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeAlias

    Json: TypeAlias = "str | int | float | bool | Sequence[Json] | Mapping[str, Json] | None"
else:
    Json = "Json"


class Output(StrEnum):
    """How an answer is printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def wanted(arguments: Sequence[str]) -> Output:
    """What arguments ask for, if they are right or not."""
    for name, value in zip(arguments, [*arguments[1:], ""], strict=False):
        if name.startswith("--output="):
            value = name.removeprefix("--output=")
        elif name.startswith("-o") and not name.startswith("--") and len(name) > 2:
            value = name[2:]
        elif name not in ("-o", "--output"):
            continue
        if value in ("json", "yaml"):
            return Output(value)
    return Output.TABLE
