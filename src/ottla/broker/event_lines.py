"""The lines of a broker's log: one for each event, with its facts.

Invariant: an event is one line that a program can read, whatever a peer put into it: everything but
plain words is quoted, and what would begin a line, colour a terminal or turn the writing direction
is escaped. What is logged with a mapping as its only argument has the mapping's entries as facts.
"""

import logging
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from json import dumps
from typing import Final

_WORD: Final = re.compile(r"[A-Za-z0-9_.,:;/@+*()\[\]-]+")


class LineFormat(StrEnum):
    """The forms of a line."""

    TEXT = "text"  # key=value, for people and for grep
    JSON = "json"  # an object


class EventLines(logging.Formatter):
    """Makes the line of a record."""

    def __init__(self, form: LineFormat) -> None:
        super().__init__()
        self._form = form

    def format(self, record: logging.LogRecord) -> str:
        """One line, without its end."""
        facts = self._facts(record)
        if self._form is LineFormat.JSON:
            return dumps(facts, default=str).replace("\x7f", "\\u007f")
        return " ".join(f"{name}={_quoted(value)}" for name, value in facts.items())

    def _facts(self, record: logging.LogRecord) -> dict[str, object]:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        facts: dict[str, object] = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "source": record.name.removeprefix("ottla."),
            "event": record.getMessage(),
        }
        if isinstance(record.args, Mapping):
            for name, value in record.args.items():
                facts.setdefault(name, value)
        if record.exc_info and (error := record.exc_info[1]) is not None:
            facts["error"] = f"{type(error).__name__}: {error}"
            facts["trace"] = self.formatException(record.exc_info)
        return facts


def _quoted(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if _WORD.fullmatch(text):
        return text
    return dumps(text).replace("\x7f", "\\u007f")
