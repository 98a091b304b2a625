"""Paths of nodes.

Invariant: a path that passed `check_path` starts with a slash and does not end with one unless it
is the root. It has no empty, `.` or `..` component and no character that ZooKeeper refuses.
"""

import re
from typing import Final

from ottla.coordination.errors import InvalidPath

ROOT: Final = "/"

# ZooKeeper refuses control characters, surrogates and private use. One expression checks the whole
# path: deleting a topic checks thousands of paths.
_VALID: Final = re.compile(
    r"(?:/(?!\.{1,2}(?:/|\Z))[^/\u0000-\u001f\u007f-\u009f\ud800-\uf8ff\ufff0-\uffff]+)+"
)


def check_path(path: str, index: int = 0) -> None:
    """Raise InvalidPath unless ZooKeeper accepts the path."""
    if path != ROOT and _VALID.fullmatch(path) is None:
        raise InvalidPath(path, index)


def parent_of(path: str) -> str:
    """Return the path of the parent; the root has none."""
    assert path != ROOT
    return path.rpartition("/")[0] or ROOT


def name_of(path: str) -> str:
    """Return the last component of a path."""
    return path.rpartition("/")[2]
