"""What commands print, kept in files: the files are reviewed like code.

OTTLA_GOLDEN=write puts there what is printed now.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

FOLDER = Path(__file__).parent / "golden"

# What differs from run to run, and what stands for it: as long, so that columns stay in line.
_UNSETTLED = (
    (re.compile(r"(?<![\w-])(?=[\w-]*[A-Z0-9])[\w-]{22}(?![\w-])"), "AAAAAAAAAAAAAAAAAAAAAA"),
    (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1:9092"),
    (re.compile(r"/tmp/[^\s'\",:]+/"), "/tmp/"),
)


def check_golden(name: str, text: str, known: Mapping[str, str] | None = None) -> None:
    """Compare with a file, after what is known to differ each time is replaced by its name."""
    for value, word in (known or {}).items():
        text = text.replace(value, f"<{word}>")
    path = FOLDER / name
    if os.environ.get("OTTLA_GOLDEN") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.exists(), f"{name} is new: OTTLA_GOLDEN=write makes it"
    assert text == path.read_text(encoding="utf-8")


def check_settled(name: str, text: str) -> None:
    """The same, with the ids of topics, ports and folders replaced."""
    for pattern, instead in _UNSETTLED:
        text = pattern.sub(instead, text)
    check_golden(name, text)
