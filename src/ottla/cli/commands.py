"""The commands of `ottla`, and where each of them is.

Invariant: a command's module is imported when that command runs or when all are to be shown, so
that what one command needs costs the others nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

import typer


@dataclass(frozen=True, slots=True)
class Command:
    """A command, or a noun with several."""

    name: str
    module: str
    attribute: str = "app"

    def add(self, app: typer.Typer) -> None:
        """Import it and put it there."""
        found: Any = getattr(import_module(self.module), self.attribute)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=self.name)
        else:
            app.command(self.name)(found)


COMMANDS: Final = (
    Command("dev", "ottla.cli.broker", "dev"),
    Command("broker", "ottla.cli.broker", "broker"),
    Command("topic", "ottla.cli.topic.command"),
    Command("config", "ottla.cli.config.command"),
    Command("group", "ottla.cli.group.command"),
    Command("offsets", "ottla.cli.offsets.command", "offsets"),
    Command("consume", "ottla.cli.records.consume", "consume"),
    Command("produce", "ottla.cli.records.produce", "produce"),
    Command("perf", "ottla.cli.perf.command"),
    Command("log", "ottla.cli.log.command"),
    Command("cluster", "ottla.cli.cluster.command"),
    Command("api-versions", "ottla.cli.cluster.api_versions", "api_versions"),
    Command("doctor", "ottla.cli.doctor.command", "doctor"),
    Command("profile", "ottla.cli.profile.command"),
    Command("version", "ottla.cli.version_command", "show"),
)


def add_commands(app: typer.Typer, arguments: Sequence[str]) -> None:
    """Put the one there that arguments name, or all."""
    named = next((one for one in arguments if not one.startswith("-")), None)
    for one in [one for one in COMMANDS if one.name == named] or COMMANDS:
        one.add(app)
