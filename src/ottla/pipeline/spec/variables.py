"""Variables in a declaration: ${NAME}, ${NAME:-default} and ${file:PATH}; $${ is a plain ${.

Invariant: the value of a variable is only in the returned text and in `values`. A problem names the
variable, never its value.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

from ottla.pipeline.spec.problems import (
    Path,
    PipelineProblem,
    Substituted,
    did_you_mean,
)

FILE: Final = "file:"
_VARIABLE: Final = re.compile(r"\$(\$\{|\{([^{}]*)(\}?))")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

ReadFile = Callable[[str], str]
"""Reads a file; raises OSError or UnicodeDecodeError."""


class Variables:
    """Replaces variables by their values, and collects what is missing."""

    def __init__(
        self, environment: Mapping[str, str], read_file: ReadFile, profile: str | None
    ) -> None:
        self.problems: list[PipelineProblem] = []
        self.values: dict[str, str] = {}
        """The values from the environment and from files, with their variables."""

        self._environment = environment
        self._read_file = read_file
        self._profile = profile

    def substitute(self, path: Path, text: str) -> str:
        """Return a text with its variables replaced.

        The text stays as it is if a value is missing, and in a profile that is not used: only the
        syntax of its variables is checked.
        """
        if "${" not in text:
            return text
        is_used = path[0] != "profiles" or path[1] == self._profile
        problems: list[PipelineProblem] = []

        def value(found: re.Match[str]) -> str:
            if found[1] == "${":
                return "${"
            try:
                return self._value(found[2], found[3], is_used=is_used)
            except _Unusable as error:
                problems.append(PipelineProblem(path, str(error), offset=found.start()))
                return found[0]

        replaced = _VARIABLE.sub(value, text)
        self.problems += problems
        return text if problems or not is_used else Substituted(replaced, text)

    def _value(self, inside: str, end: str, *, is_used: bool) -> str:
        if not end:
            raise _Unusable("${ has no closing brace; for a plain ${ write $${")
        if inside.startswith(FILE):
            return self._file(inside.removeprefix(FILE), is_used=is_used)
        name, has_default, default = inside.partition(":-")
        if not _NAME.fullmatch(name):
            raise _Unusable(
                "expected ${NAME}, ${NAME:-default} or ${file:PATH}; for a plain ${ write $${"
            )
        if not is_used:
            return ""
        value = self._environment.get(name)
        if value:
            self.values.setdefault(value, f"${{{name}}}")
            return value
        if has_default:
            return default
        if value is not None:
            raise _Unusable(f"the environment variable {name} is empty")
        hint = did_you_mean(name, self._environment)
        what = f"the environment variable {name} is not set{hint}"
        raise _Unusable(what if hint else f"{what}; set it, or write ${{{name}:-default}}")

    def _file(self, path: str, *, is_used: bool) -> str:
        if not path:
            raise _Unusable("${file:} names no file")
        if not is_used:
            return ""
        try:
            value = self._read_file(path).rstrip("\r\n")
        except UnicodeDecodeError:
            raise _Unusable(f"the file {path} is not UTF-8") from None
        except OSError as error:
            raise _Unusable(f"cannot read the file {path}: {error.strerror}") from None
        self.values.setdefault(value, f"${{{FILE}{path}}}")
        return value


def is_unresolved(text: str) -> bool:
    """Whether a text has variables that were not replaced, so that its value is not known."""
    return "${" in text and not isinstance(text, Substituted)


class _Unusable(Exception):
    """A variable that has no value."""
