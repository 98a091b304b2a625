"""Who waits to be told of changes.

Invariant: a watch is told once and then forgotten, in the order in which watches were set. What it
waits for depends on the read that set it: data and existence, or children; that the node is gone
concerns both.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from ottla.coordination.session import Change, Watch, WatchEvent


class _Armed(NamedTuple):
    session_id: int
    watch: Watch


class Fired(NamedTuple):
    """A watch that is forgotten, and what it is to be told."""

    armed: _Armed
    event: WatchEvent
    of_children: bool

    @property
    def news(self) -> tuple[Watch, WatchEvent]:
        """Whom to tell what."""
        return self.armed.watch, self.event


class Watches:
    """Watches by the path that they look at."""

    def __init__(self) -> None:
        self._data: dict[str, list[_Armed]] = {}
        self._children: dict[str, list[_Armed]] = {}

    def on_data(self, path: str, session_id: int, watch: Watch) -> None:
        """Tell when the node is made, set or deleted."""
        self._data.setdefault(path, []).append(_Armed(session_id, watch))

    def on_children(self, path: str, session_id: int, watch: Watch) -> None:
        """Tell when a child is made or deleted, or the node itself."""
        self._children.setdefault(path, []).append(_Armed(session_id, watch))

    def fired(self, events: Iterable[WatchEvent]) -> Iterator[Fired]:
        """Forget the watches that these events concern, and say what each is to be told."""
        for event in events:
            if event.change is not Change.CHILDREN:
                for armed in self._data.pop(event.path, ()):
                    yield Fired(armed, event, of_children=False)
            if event.change in (Change.CHILDREN, Change.DELETED):
                for armed in self._children.pop(event.path, ()):
                    yield Fired(armed, event, of_children=True)

    def put_back(self, fired: Iterable[Fired]) -> None:
        """Watch on, for what happened was taken back."""
        for one in fired:
            table = self._children if one.of_children else self._data
            table.setdefault(one.event.path, []).append(one.armed)

    def dropped(self, session_id: int) -> list[tuple[Watch, WatchEvent]]:
        """Forget the watches of a session, and say what each is to be told."""
        found: list[tuple[Watch, WatchEvent]] = []
        for path, armed in list(chain(self._data.items(), self._children.items())):
            told = WatchEvent(Change.DISCONNECTED, path)
            found += [(one.watch, told) for one in armed if one.session_id == session_id]
        for table in (self._data, self._children):
            for path in list(table):
                table[path] = [one for one in table[path] if one.session_id != session_id]
                if not table[path]:
                    del table[path]
        return found
