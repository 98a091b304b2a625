"""Output formats: a table for people, JSON or YAML for programs.

Invariant: JSON and YAML have the same stable keys; only the table may change.
"""

from collections.abc import Sequence
from enum import StrEnum

TYPE_CHECKING = False  # typing is imported on use, because this module comes first
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeAlias

    Json: TypeAlias = "str | int | float | bool | Sequence[Json] | Mapping[str, Json] | None"
else:
    Json = "Json"


class Output(StrEnum):
    """The output format."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def wanted(arguments: Sequence[str]) -> Output:
    """Return the format in the arguments, valid or not."""
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
