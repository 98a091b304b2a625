"""Finds the Ottla brokers that run on this machine by their command lines.

Invariant: only a process with the command line of a broker is one. Its id is read where the broker
reads it: from its overrides, its properties file or its data directory.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ottla.cli.broker import VERBS
from ottla.settings import broker
from ottla.settings.config import Config
from ottla.settings.config_parser import broker_config
from ottla.settings.derived import broker_id, log_dirs
from ottla.settings.invalid_settings import InvalidSettings
from ottla.settings.properties import read_properties

FIRST_BROKER: Final = 1
_META: Final = "meta.properties"
_DAEMON: Final = "-daemon"


@dataclass(frozen=True, slots=True)
class BrokerCommand:
    """The arguments that a broker was started with."""

    file: str | None
    overrides: Sequence[str]


@dataclass(frozen=True, slots=True)
class BrokerProcess:
    """A running broker; its id is None if unknown."""

    pid: int
    node_id: int | None


def command_of(words: Sequence[str]) -> BrokerCommand | None:
    """Return the broker that a command line runs; None if it does not run one."""
    is_interpreted = len(words) > 1 and os.path.basename(words[0]).startswith(("python", "pypy"))
    tool, *rest = words[1:] if is_interpreted else words or [""]
    match os.path.basename(tool).removesuffix(".sh"), rest:
        case "kafka-server-start", [file, *_] if file != _DAEMON:  # the daemon's parent ends soon
            return BrokerCommand(file, _values(rest, "--override"))
        case "ottla", ["broker", *others] if others[:1] not in [[one] for one in VERBS]:
            files = _values(rest, "--config")
            return BrokerCommand(files[-1] if files else None, _values(rest, "--override"))
        case "ottla", ["dev", *_]:
            data = (_values(rest, "--data") or [".ottla"])[-1]
            return BrokerCommand(None, [f"log.dirs={data}/data", *_values(rest, "--override")])
        case _:
            return None


def _values(words: Sequence[str], flag: str) -> list[str]:
    found = [value for name, value in zip(words, [*words[1:], ""], strict=False) if name == flag]
    return found + [word.removeprefix(f"{flag}=") for word in words if word.startswith(f"{flag}=")]


def node_id_of(command: BrokerCommand, read: Callable[[str], str | None]) -> int | None:
    """Return the id of a broker; `read` returns the text of a file, or None."""
    try:
        text = None if command.file is None else read(command.file)
        if command.file is not None and text is None:
            return None
        properties = None if text is None else read_properties(text, command.file or "")
        config: Config = broker_config(properties, command.overrides)
    except InvalidSettings:
        return None
    given = broker_id(config)
    if given is not None:
        return given
    meta = read(f"{log_dirs(config)[0]}/{_META}")
    if meta is not None:
        for entry in read_properties(meta, _META).entries:
            if entry.name in ("node.id", "broker.id") and str(entry.value).isdigit():
                return int(str(entry.value))
    return FIRST_BROKER if config[broker.ZOOKEEPER_CONNECT] is None else None  # it generates one


def running() -> Iterator[BrokerProcess]:
    """Return the running brokers; none on a system without /proc."""
    names: list[str] = []
    with suppress(OSError):
        names = os.listdir("/proc")
    for name in sorted(filter(str.isdigit, names), key=int):
        with suppress(OSError):  # ended, or of another user
            words = Path(f"/proc/{name}/cmdline").read_bytes().decode(errors="replace")
            command = command_of(words.rstrip("\0").split("\0"))
            if command is not None and int(name) != os.getpid():
                folder = Path(os.readlink(f"/proc/{name}/cwd"))
                yield BrokerProcess(int(name), node_id_of(command, _reader(folder)))


def _reader(folder: Path) -> Callable[[str], str | None]:
    """Return a function that reads files relative to the folder of a process."""

    def read(name: str) -> str | None:
        try:
            return (folder / name).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None

    return read
