"""Golden files: the output of commands, reviewed like code.

OTTLA_GOLDEN=write writes the present output to the files.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

FOLDER = Path(__file__).parent / "golden"

# What differs between runs, and its replacement of the same length, so that columns stay aligned.
_UNSETTLED = (
    (re.compile(r"(?<![\w-])(?=[\w-]*[A-Z0-9])[\w-]{22}(?![\w-])"), "AAAAAAAAAAAAAAAAAAAAAA"),
    (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1:9092"),
    (re.compile(r"/tmp/[^\s'\",:]+/"), "/tmp/"),
)


def check_golden(name: str, text: str, known: Mapping[str, str] | None = None) -> None:
    """Compare with a file, after values that differ between runs are replaced by their names."""
    for value, word in (known or {}).items():
        text = text.replace(value, f"<{word}>")
    path = FOLDER / name
    if os.environ.get("OTTLA_GOLDEN") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.exists(), f"{name} is new: OTTLA_GOLDEN=write makes it"
    assert text == path.read_text(encoding="utf-8")


def check_settled(name: str, text: str) -> None:
    """Compare with a file, after topic ids, ports and directories are replaced."""
    for pattern, instead in _UNSETTLED:
        text = pattern.sub(instead, text)
    check_golden(name, text)
