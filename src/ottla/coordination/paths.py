"""The paths of nodes.

Invariant: a path that passed `check_path` begins with a slash, does not end with one unless it is
the root, and has no empty, `.` or `..` part and no character that ZooKeeper refuses.
"""

import re
from typing import Final

from ottla.coordination.errors import InvalidPath

ROOT: Final = "/"

# What ZooKeeper's PathUtils refuses: control characters, and what is no text on its own.
_REFUSED: Final = re.compile("[\u0000-\u001f\u007f-\u009f\ud800-\uf8ff\ufff0-\uffff]")


def check_path(path: str, index: int = 0) -> None:
    """Raise InvalidPath unless it is the path of a node that there could be."""
    if path == ROOT:
        return
    if not path.startswith("/") or _REFUSED.search(path):
        raise InvalidPath(path, index)
    if any(part in ("", ".", "..") for part in path[1:].split("/")):
        raise InvalidPath(path, index)


def parent_of(path: str) -> str:
    """The path of the node above; the root has none."""
    assert path != ROOT
    return path.rpartition("/")[0] or ROOT


def name_of(path: str) -> str:
    """What a node is called among the children of its parent."""
    return path.rpartition("/")[2]


def child_of(path: str, name: str) -> str:
    """The path of a child."""
    return f"/{name}" if path == ROOT else f"{path}/{name}"
