"""The table of `ottla` commands.

Invariant: a command's module is imported only if it runs or if all are listed, so that commands
start fast.
"""

from collections.abc import Sequence
from copy import copy
from importlib import import_module
from typing import Any, Final, NamedTuple

import typer


class Command(NamedTuple):
    """A command, or a noun with several."""

    name: str
    module: str
    attribute: str = "app"

    def add(self, app: typer.Typer, verb: str = "") -> None:
        """Import and add it; of a noun only the requested verb."""
        found: Any = getattr(import_module(self.module), self.attribute)
        if isinstance(found, typer.Typer):
            app.add_typer(_with(found, verb), name=self.name)
        else:
            app.command(self.name)(found)


COMMANDS: Final = (
    Command("dev", "ottla.cli.broker.server", "dev"),
    Command("broker", "ottla.cli.broker.command"),
    Command("topic", "ottla.cli.topic.command"),
    Command("partition", "ottla.cli.partition.command"),
    Command("config", "ottla.cli.config.command"),
    Command("group", "ottla.cli.group.command"),
    Command("offsets", "ottla.cli.offsets.command", "offsets"),
    Command("consume", "ottla.cli.records.consume", "consume"),
    Command("produce", "ottla.cli.records.produce", "produce"),
    Command("collect", "ottla.cli.collect.command"),
    Command("perf", "ottla.cli.perf.command"),
    Command("log", "ottla.cli.log.command"),
    Command("pipeline", "ottla.cli.pipeline.command"),
    Command("cluster", "ottla.cli.cluster.command"),
    Command("zookeeper", "ottla.cli.zookeeper.command"),
    Command("api-versions", "ottla.cli.cluster.api_versions", "api_versions"),
    Command("doctor", "ottla.cli.doctor.command", "doctor"),
    Command("profile", "ottla.cli.profile.command"),
    Command("version", "ottla.cli.version_command", "show"),
)


def add_commands(app: typer.Typer, arguments: Sequence[str]) -> None:
    """Add the command that the arguments name, or all commands."""
    noun, verb = [*arguments, "", ""][:2]
    for one in [one for one in COMMANDS if one.name == noun] or COMMANDS:
        one.add(app, verb if one.name == noun else "")


def _with(noun: typer.Typer, verb: str) -> typer.Typer:
    """Return a noun with one of its verbs only, if it has that."""
    named = [one for one in noun.registered_commands if one.name == verb]
    if not named:
        return noun
    found = copy(noun)
    found.registered_commands = named
    return found
