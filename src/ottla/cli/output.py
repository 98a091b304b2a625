"""How a command prints what it found: a table for people, JSON or YAML for programs.

Invariant: the keys of JSON and YAML are the same and stable; only the table is free to change.
"""

from collections.abc import Mapping
from enum import StrEnum
from json import dumps
from typing import Annotated

import typer


class Output(StrEnum):
    """The forms of an answer."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


OutputOption = Annotated[
    Output, typer.Option("-o", "--output", help="How to print the answer.", show_default=True)
]


def show_facts(facts: Mapping[str, str | int | bool], output: Output) -> None:
    """Print names with their values."""
    match output:
        case Output.JSON:
            typer.echo(dumps(dict(facts)))
        case Output.YAML:
            # A JSON scalar is a YAML scalar, whatever characters it holds.
            for name, value in facts.items():
                typer.echo(f"{name}: {dumps(value)}")
        case Output.TABLE:
            width = max(map(len, facts))
            for name, value in facts.items():
                shown = ("yes" if value else "no") if isinstance(value, bool) else str(value)
                # Not rich's table: it would cut what is wider than the terminal, paths above all.
                typer.echo(f"{name.replace('_', ' '):{width}}  {shown}")
