"""Flags of Kafka's tools, declared as a table, and their parser.

Invariant: a table has every flag of Kafka's tool. An unsupported flag has another error than an
unknown one. Where the tool allows it, a flag may be abbreviated to an unambiguous prefix. A value
is the next word, or follows `=`.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ottla.errors import OttlaError

HELP: Final = "help"
VERSION: Final = "version"


class BadFlags(OttlaError):
    """The flags are wrong: the tool prints the message and the usage and exits with 1."""


class GivenTwice(BadFlags):
    """A flag that may be given once was given more than once."""


class NotDone(OttlaError):
    """Kafka has this flag and Ottla does not support it yet: one line, exit code 2."""


class AskedForHelp(OttlaError):
    """The tool is to print its usage and exit with a code."""

    def __init__(self, code: int) -> None:
        super().__init__("usage requested")
        self.code = code


class AskedForVersion(OttlaError):
    """The tool is to print its version and exit with 0."""


class Flag(NamedTuple):
    """A flag; `takes` names its value, None if it has none."""

    name: str
    takes: str | None = None
    help: str = ""
    many: bool = False
    optional: bool = False
    """Whether the value is optional."""
    done: bool = True
    short: str | None = None
    """A one-letter name, such as `-b`."""

    def __str__(self) -> str:
        return f"--{self.name}"

    @property
    def text(self) -> str:
        """The help, which says if the flag is not supported yet."""
        return self.help if self.done else f"{self.help} Not supported yet.".strip()


class Given(NamedTuple):
    """The parsed arguments."""

    values: Mapping[str, Sequence[str]]
    rest: Sequence[str] = ()
    order: Sequence[str] = ()
    """The flags in the order given, with repetitions."""

    def __contains__(self, name: object) -> bool:
        return name in self.values

    def one(self, name: str) -> str | None:
        """Return the value of a flag; the last one of several."""
        found = self.values.get(name)
        return found[-1] if found else None

    def all(self, name: str) -> Sequence[str]:
        """Return the values of a flag that may be repeated."""
        return self.values.get(name, ())


@dataclass(frozen=True, slots=True)
class Usage:
    """A tool and its flags."""

    tool: str
    purpose: str
    flags: Sequence[Flag]
    arguments: Sequence[tuple[str, str]] = ()
    """Arguments that are not flags, with their help."""
    takes_short_names: bool = False
    """Whether flags may be abbreviated; most of Kafka's tools do not allow it."""
    takes_one_dash: bool = True
    """Whether one dash is enough (`-list`); not where flags may be abbreviated."""
    has_version: bool = True
    help_code: int = 1
    """Exit code of --help; 1 in most of Kafka's tools."""
    helps_on_stdout: bool = False
    by_name: Mapping[str, Flag] = field(init=False)
    _shorts: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        standard = [Flag(HELP, help="Print this help.")]
        if self.has_version:
            standard.append(Flag(VERSION, help="Print the version."))
        named = {one.name: one for one in (*standard, *self.flags)}
        object.__setattr__(self, "by_name", named)
        shorts = {f"-{one.short}": one.name for one in self.flags if one.short is not None}
        object.__setattr__(self, "_shorts", shorts)

    def read(self, arguments: Sequence[str]) -> Given:
        """Parse arguments."""
        values: dict[str, list[str]] = {}
        rest: list[str] = []
        order: list[str] = []
        words = deque(arguments)
        while words:
            word = words.popleft()
            if word == "--":
                rest += words
                words.clear()
            elif (said := self._flag(word)) is not None:
                name, equals, value = said.partition("=")
                flag = self._named(name)
                values.setdefault(flag.name, [])
                order.append(flag.name)
                if flag.takes is not None:
                    values[flag.name] += _values(flag, value if equals else None, words)
            else:
                rest.append(word)
        if HELP in values:
            raise AskedForHelp(self.help_code)
        if VERSION in values:
            raise AskedForVersion
        for name in values:
            if not self.by_name[name].done:
                raise NotDone(f"{self.tool}: --{name} is not supported yet")
        for name, found in values.items():
            if len(found) > 1 and not self.by_name[name].many:
                raise GivenTwice(
                    f"Found multiple arguments for option {name}, but you asked for only one"
                )
        return Given(values, rest, order)

    def _flag(self, word: str) -> str | None:
        """Return the flag of a word without dashes, with its `=value`; None if not a flag."""
        if word in self._shorts:
            return self._shorts[word]
        if word.startswith("--"):
            return word[2:]
        if len(word) < 2 or word[0] != "-" or self.takes_short_names or not self.takes_one_dash:
            return None
        # Kafka's tools parse an unknown flag as single letters and report the first one.
        return word[1:] if word[1:].partition("=")[0] in self.by_name else word[1]

    def _named(self, name: str) -> Flag:
        if name in self.by_name:
            return self.by_name[name]
        short = [
            flag
            for known, flag in self.by_name.items()
            if self.takes_short_names and known.startswith(name)
        ]
        if len(short) != 1 or not name:
            raise BadFlags(f"{name} is not a recognized option")
        return short[0]

    def after(self, why: object) -> str:
        """Return an error and the usage, which begins with the purpose of the tool."""
        text = self.text()
        return text if str(why) == self.purpose else f"{why}\n{text}"

    def text(self) -> str:
        """Return the usage."""
        lines = [self.purpose, ""]
        flags = sorted(self.by_name.values(), key=lambda one: one.name)
        rows = [*self.arguments, *((_form(flag), flag.text) for flag in flags)]
        width = max(len(form) for form, _ in rows)
        lines += [f"  {form:{width}}  {what}".rstrip() for form, what in rows]
        return "\n".join(lines)


def _values(flag: Flag, value: str | None, words: deque[str]) -> list[str]:
    """Return the value after `=`, or else the next word; empty if optional and omitted."""
    if value is not None:
        return [value]
    if flag.optional and (not words or words[0].startswith("--")):
        return []
    if not words:
        raise BadFlags(f"Option {flag.name} requires an argument")
    return [words.popleft()]


def _form(flag: Flag) -> str:
    names = str(flag) if flag.short is None else f"{flag}, -{flag.short}"
    return names if flag.takes is None else f"{names} <{flag.takes}>"
