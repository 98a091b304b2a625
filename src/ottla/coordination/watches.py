"""The registered watches.

Invariant: a watch fires once and is then removed. Watches fire in the order in which they were set.
A watch is for data and existence, or for children, depending on the read that set it; deletion of
the node fires both kinds.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from ottla.coordination.session import Change, Watch, WatchEvent


class _Armed(NamedTuple):
    session_id: int
    watch: Watch


class Fired(NamedTuple):
    """A removed watch and its event."""

    armed: _Armed
    event: WatchEvent
    of_children: bool

    @property
    def news(self) -> tuple[Watch, WatchEvent]:
        """The watch with the event to call it with."""
        return self.armed.watch, self.event


class Watches:
    """Watches by path."""

    def __init__(self) -> None:
        self._data: dict[str, list[_Armed]] = {}
        self._children: dict[str, list[_Armed]] = {}

    def __contains__(self, path: object) -> bool:
        """Whether a path is watched."""
        return path in self._data or path in self._children

    def on_data(self, path: str, session_id: int, watch: Watch) -> None:
        """Fire when the node is created, set or deleted."""
        self._data.setdefault(path, []).append(_Armed(session_id, watch))

    def on_children(self, path: str, session_id: int, watch: Watch) -> None:
        """Fire when a child is created or deleted, or the node itself is deleted."""
        self._children.setdefault(path, []).append(_Armed(session_id, watch))

    def fired(self, events: Iterable[WatchEvent]) -> Iterator[Fired]:
        """Remove and yield the watches that these events fire."""
        for event in events:
            if event.change is not Change.CHILDREN:
                for armed in self._data.pop(event.path, ()):
                    yield Fired(armed, event, of_children=False)
            if event.change in (Change.CHILDREN, Change.DELETED):
                for armed in self._children.pop(event.path, ()):
                    yield Fired(armed, event, of_children=True)

    def put_back(self, fired: Iterable[Fired]) -> None:
        """Register fired watches again, because the change was rolled back."""
        for one in fired:
            table = self._children if one.of_children else self._data
            table.setdefault(one.event.path, []).append(one.armed)

    def dropped(self, session_id: int) -> list[tuple[Watch, WatchEvent]]:
        """Remove and return the watches of a session with their events."""
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
