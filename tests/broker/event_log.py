"""A broker's log as a program reads it."""

import json
import re

_FACT = re.compile(r'([a-z_]+)=("(?:[^"\\]|\\.)*"|[^\s"=]+)(?: |$)')


def read_text(line: str) -> dict[str, str]:
    """The facts of a line of key=value; ValueError when it is none."""
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
    """The facts of a line of JSON."""
    facts = json.loads(line)
    assert isinstance(facts, dict)
    return {str(name): str(value) for name, value in facts.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
