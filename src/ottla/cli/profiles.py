"""Profiles: named connection settings in a file of the user.

Invariant: the file is replaced atomically, by one command at a time, and only its owner can read
it, because it may contain passwords. Comments in it are lost on a change.
"""

import os
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple, cast

from ottla.cli.failures import BadProfile

CONFIG_VARIABLE: Final = "OTTLA_CONFIG"
PROFILE_VARIABLE: Final = "OTTLA_PROFILE"


class Profiles(NamedTuple):
    """The content of the file."""

    settings: Mapping[str, Mapping[str, str]] = MappingProxyType({})
    used: str | None = None

    def of(self, name: str) -> Mapping[str, str]:
        """Return the settings of a profile."""
        if name not in self.settings:
            names = ", ".join(sorted(self.settings))
            known = f"known profiles: {names}" if names else "there are no profiles"
            raise BadProfile(f"profile {name!r} does not exist; {known}")
        return self.settings[name]

    def with_settings(self, name: str, changes: Mapping[str, str]) -> "Profiles":
        """Return with a profile changed or added; an empty value removes a setting."""
        before = self.settings.get(name, {})
        after = {key: value for key, value in {**before, **changes}.items() if value}
        return Profiles({**self.settings, name: after}, self.used)

    def without(self, name: str) -> "Profiles":
        """Return without a profile."""
        self.of(name)
        left = {other: found for other, found in self.settings.items() if other != name}
        return Profiles(left, None if self.used == name else self.used)

    def using(self, name: str | None) -> "Profiles":
        """Return with another default profile."""
        if name is not None:
            self.of(name)
        return Profiles(self.settings, name)


def config_path(environment: Mapping[str, str]) -> Path:
    """Return the path of the file."""
    if given := environment.get(CONFIG_VARIABLE):
        return Path(given)
    base = environment.get("XDG_CONFIG_HOME") or os.path.join(
        environment.get("HOME") or os.path.expanduser("~"), ".config"
    )
    return Path(base) / "ottla" / "config.toml"


def read(path: Path) -> Profiles:
    """Return the profiles of a file; none if it does not exist."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Profiles()
    except (OSError, UnicodeDecodeError) as error:
        raise BadProfile(f"cannot read {path}: {error}") from None
    import tomllib  # not needed without a file, and commands start faster

    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadProfile(f"cannot read {path}: {error}") from None
    used = found.get("profile")
    profiles = found.get("profiles", {})
    if not isinstance(profiles, dict) or not (used is None or isinstance(used, str)):
        raise BadProfile(f"{path} has no [profiles.NAME] table, or `profile` is not a name")
    settings: dict[str, Mapping[str, str]] = {}
    for name, given in cast("dict[str, Any]", profiles).items():
        if not isinstance(given, dict):
            raise BadProfile(f"{path}: profile {name!r} is not a table of settings")
        settings[name] = _flat(cast("dict[str, Any]", given))
    return Profiles(settings, used)


def _flat(given: Mapping[str, Any], before: str = "") -> dict[str, str]:
    """Return settings with full names: TOML makes tables of dotted names without quotes."""
    flat: dict[str, str] = {}
    for name, value in given.items():
        if isinstance(value, dict):
            flat |= _flat(cast("dict[str, Any]", value), f"{before}{name}.")
        elif isinstance(value, bool):
            flat[before + name] = "true" if value else "false"
        else:
            flat[before + name] = str(value)
    return flat


def changed(path: Path, change: Callable[[Profiles], Profiles]) -> Profiles:
    """Read, change and write the file under a lock; returns the new profiles."""
    with _locked(path):
        after = change(read(path))
        write(path, after)
    return after


@contextmanager
def _locked(path: Path) -> Generator[None]:
    """Lock the file.

    The lock is a file beside it, because the file itself is replaced. It stays: removing it would
    let in a command besides those that wait for it.
    """
    import fcntl  # needed only for changes

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise BadProfile(f"cannot write {path}: {error.strerror}") from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:
            raise BadProfile(f"cannot lock {path}: {error.strerror}") from None
        yield
    finally:
        os.close(lock)


def write(path: Path, profiles: Profiles) -> None:
    """Write the file."""
    lines = [] if profiles.used is None else [f"profile = {_quoted(profiles.used)}", ""]
    for name, settings in profiles.settings.items():
        lines.append(f"[profiles.{_quoted(name)}]")
        lines += [f"{_quoted(key)} = {_quoted(value)}" for key, value in settings.items()]
        lines.append("")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f"{path.name}.{os.getpid()}")
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write("\n".join(lines))
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        raise BadProfile(f"cannot write {path}: {error.strerror}") from None


def _quoted(text: str) -> str:
    """Return a TOML string: a JSON string but for one character."""
    from json import dumps

    return dumps(text).replace("\x7f", "\\u007f")
