"""Parsers for the lines of a broker's log."""

import json
import re

_FACT = re.compile(r'([a-z_]+)=("(?:[^"\\]|\\.)*"|[^\s"=]+)(?: |$)')


def read_text(line: str) -> dict[str, str]:
    """Return the fields of a key=value line; raise ValueError for any other line."""
    facts: dict[str, str] = {}
    position = 0
    while position < len(line):
        found = _FACT.match(line, position)
        if found is None:
            raise ValueError(f"not key=value from {position} on: {line!r}")
        facts[found[1]] = json.loads(found[2]) if found[2].startswith('"') else found[2]
        position = found.end()
    return facts


def read_json(line: str) -> dict[str, str]:
    """Return the fields of a JSON line."""
    facts = json.loads(line)
    assert isinstance(facts, dict)
    return {str(name): str(value) for name, value in facts.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
