"""Formats the broker's log: one line per event, with its fields.

Invariant: an event is one line that a program can parse, whatever a peer put into it. Values that
are not plain words are quoted; line breaks, terminal colours and changes of writing direction are
escaped. If the only logging argument is a mapping, its entries are the fields.
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
    """The formats of a log line."""

    TEXT = "text"  # key=value, for people and grep
    JSON = "json"  # one JSON object


class EventLines(logging.Formatter):
    """A logging formatter for event lines."""

    def __init__(self, form: LineFormat) -> None:
        super().__init__()
        self._form = form

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a log record, without a line end."""
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
