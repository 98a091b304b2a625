"""Golden files: what a command printed when somebody last looked at it.

OTTLA_GOLDEN=write writes them anew; a person reviews the difference.
"""

import os
from pathlib import Path

FOLDER = Path(__file__).parent / "golden"


def check_golden(name: str, text: str) -> None:
    """Compare what was printed, without times, ids, ports and paths, with the file of a name."""
    path = FOLDER / name
    if os.environ.get("OTTLA_GOLDEN") == "write":
        path.write_text(text)
    assert text == path.read_text(), f"{path} differs; OTTLA_GOLDEN=write writes it anew"
