"""Messages of those Kafka tools that parse their arguments with argparse4j.

Invariant: wrong arguments print these messages and exit with 1. No arguments print the usage and
exit with 0; --help exits with 1. A flag with several values takes all words up to the next flag.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ottla.cli.kafka.client_flags import INT_BITS, LONG_BITS, sized
from ottla.cli.kafka.flags import AskedForHelp, BadFlags, Given, Usage

_UNKNOWN: Final = re.compile(r"(.*) is not a recognized option")
_DOUBLE: Final = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[dDfF]?)"
)
_NO_VALUE: Final = re.compile(r"Option (.*) requires an argument")


@dataclass(frozen=True, slots=True)
class ArgumentUsage(Usage):
    """A tool and its flags, with argparse4j's messages."""

    takes_short_names: bool = True
    has_version: bool = False
    helps_on_stdout: bool = True
    spoken: str = ""
    """Name of the tool in its error messages."""

    def read(self, arguments: Sequence[str]) -> Given:
        """Parse arguments."""
        if not arguments:
            raise AskedForHelp(0)
        words = ["--help" if one == "-h" else one for one in arguments]
        try:
            return Usage.read(self, words)
        except BadFlags as error:
            text = str(error)
            if found := _UNKNOWN.fullmatch(text):
                text = f"unrecognized arguments: '--{found[1]}'"
            elif found := _NO_VALUE.fullmatch(text):
                text = f"argument --{found[1]}: expected one argument"
            raise self.refused(text) from None

    def refused(self, text: str) -> BadFlags:
        """Return the error with this message."""
        return BadFlags(f"{self.spoken or self.tool}: error: {text}")

    def text_of(self, given: Given, name: str) -> str:
        """Return the value of a required flag."""
        if (found := given.one(name)) is None:
            raise self.refused(f"argument --{name} is required")
        return found

    def number_of(
        self, given: Given, name: str, default: int | None = None, *, bits: int = INT_BITS
    ) -> int:
        """Return the integer of a flag, with this many bits; required without a default."""
        text = given.one(name)
        if text is None and default is not None:
            return default
        text = self.text_of(given, name)
        try:
            return sized(text, bits)
        except ValueError:
            kind = "Long" if bits == LONG_BITS else "Integer"
            raise self._not_converted(name, text, kind) from None

    def double_of(self, given: Given, name: str) -> float:
        """Return the value of a required flag, parsed as Java parses a Double."""
        text = self.text_of(given, name)
        if _DOUBLE.fullmatch(text.strip()) is None:
            raise self._not_converted(name, text, "Double")
        return float(text.strip().rstrip("dDfF"))

    def _not_converted(self, name: str, text: str, kind: str) -> BadFlags:
        return self.refused(
            f"argument --{name}: could not convert '{text}' to {kind} "
            f'(For input string: "{text}")'
        )
