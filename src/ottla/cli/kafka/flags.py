"""The flags of Kafka's tools, as a table, and how they are read.

Invariant: a table has every flag that Kafka's tool has. One that is not done yet is told from one
that does not exist. Where the tool takes that, a name may be cut short as long as one flag alone
begins with it; a value is the next word, or stands behind `=`.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ottla.errors import OttlaError

HELP: Final = "help"
VERSION: Final = "version"


class BadFlags(OttlaError):
    """What was said is no use of the tool: the message, the usage, and 1."""


class GivenTwice(BadFlags):
    """A flag that may come once, and came more than once."""


class NotDone(OttlaError):
    """A flag that Kafka has and that is not done here yet: one line, and 2."""


class AskedForHelp(OttlaError):
    """The usage is what is wanted, and then an exit code."""

    def __init__(self, code: int) -> None:
        super().__init__("the usage is wanted")
        self.code = code


class AskedForVersion(OttlaError):
    """The version is what is wanted, and 0."""


class Flag(NamedTuple):
    """A flag: `takes` names its value, and None means that it has none."""

    name: str
    takes: str | None = None
    help: str = ""
    many: bool = False
    optional: bool = False
    """Whether the value may be left out."""
    done: bool = True
    short: str | None = None
    """One letter, where the tool has it: `-b`."""

    def __str__(self) -> str:
        return f"--{self.name}"


class Given(NamedTuple):
    """What was said."""

    values: Mapping[str, Sequence[str]]
    rest: Sequence[str] = ()
    order: Sequence[str] = ()
    """The names of the flags, as often as they came and one after the other."""

    def __contains__(self, name: object) -> bool:
        return name in self.values

    def one(self, name: str) -> str | None:
        """The value of a flag; the last, when there are several."""
        found = self.values.get(name)
        return found[-1] if found else None

    def all(self, name: str) -> Sequence[str]:
        """The values of a flag that may come more than once."""
        return self.values.get(name, ())


@dataclass(frozen=True, slots=True)
class Usage:
    """A tool with its flags."""

    tool: str
    purpose: str
    flags: Sequence[Flag]
    takes_short_names: bool = False
    """Whether names may be cut short, which most of Kafka's tools do not take."""
    takes_one_dash: bool = True
    """Whether one dash will do (`-list`); where names may be cut short it does not."""
    has_version: bool = True
    help_code: int = 1
    """How it ends when it is asked for help: most of Kafka's tools have 1 for that."""
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
        """What arguments say."""
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
        """The name of a flag that a word says, or is to say, with its value; None if it is none."""
        if word in self._shorts:
            return self._shorts[word]
        if word.startswith("--"):
            return word[2:]
        if len(word) < 2 or word[0] != "-" or self.takes_short_names or not self.takes_one_dash:
            return None
        # Kafka's tools read what they do not know as letters, and complain about the first.
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

    def text(self) -> str:
        """What there is to say about it."""
        lines = [self.purpose, ""]
        width = max(len(_form(flag)) for flag in self.by_name.values())
        for flag in sorted(self.by_name.values(), key=lambda one: one.name):
            what = flag.help if flag.done else f"{flag.help} Not supported yet.".strip()
            lines.append(f"  {_form(flag):{width}}  {what}".rstrip())
        return "\n".join(lines)


def _values(flag: Flag, value: str | None, words: deque[str]) -> list[str]:
    """The value of a flag, behind it or the next word; none where it may be left out."""
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
