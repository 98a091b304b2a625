"""What one connection holds of the memory that all of them share.

Invariant: what was held is given back once: for a request when it is served, for an answer when
the client has taken it, and all of it when the connection goes. A frame that is coming holds its
memory before it gets it; when there is none it is `short`, nothing is read for it, and `go_on` of
its owner is called when there is. An answer is held in the memory that its client has earned by
what it took before.
"""

from mmap import mmap
from typing import Final

from ottla.protocol.frames import Framer
from ottla.protocol.spares import Spares
from ottla.transport.budget import (
    KNOWN_BYTES,
    SLOW_SECONDS,
    STRANGER_SECONDS,
    Budget,
    Holder,
    Memory,
    Pace,
)

ORDINARY_BYTES: Final = 1024 * 1024 + 64 * 1024
"""What a producer sends at most by default, and something around it."""


class _Nobody:
    def go_on(self) -> None:
        """Nobody waits."""


_NOBODY: Final = _Nobody()


class Holding:
    """The memory of one connection."""

    __slots__ = (
        "_answer_bytes",
        "_answer_pace",
        "_frame_bytes",
        "_memory",
        "_owner",
        "_taken",
        "frame_pace",
        "request_bytes",
        "short",
    )

    def __init__(self, memory: Memory, owner: Holder) -> None:
        self._memory = memory
        self._owner = owner
        self._frame_bytes = 0  # of the frame that is coming
        self.request_bytes = 0  # of one that is whole, while it is served
        self._answer_bytes = 0  # of an answer that is not taken
        self._taken = 0  # bytes of all answers that were
        self.short = False
        self.frame_pace = Pace()
        self._answer_pace = Pace()

    # A frame comes.

    @property
    def spares(self) -> Spares:
        """Memory of earlier frames, of all connections."""
        return self._memory.spares

    def note_frame(self, framer: Framer) -> None:
        """Bytes of a large frame have come, or it begins or ends: hold what it needs next."""
        requests = self._memory.requests
        memory = framer.memory
        if self.short:
            self.short = False
            requests.leave(self._owner)
        if not memory:
            self.request_bytes += self._frame_bytes
            self._frame_bytes = 0
            return
        if memory > self._frame_bytes:
            requests.held += memory - self._frame_bytes  # what a beginning takes is not asked for
            self._frame_bytes = memory
        growth = framer.growth
        if not growth:
            return
        claimed = framer.claimed
        ordinary = claimed <= ORDINARY_BYTES
        if requests.take(self._owner, growth, claimed - memory, ordinary=ordinary):
            self._frame_bytes += growth
        else:
            self.short = True

    def note_served(self) -> None:
        """Nobody needs the frame any more."""
        count, self.request_bytes = self.request_bytes, 0
        self._memory.requests.give_back(self._owner, count)

    # An answer goes.

    @property
    def answers(self) -> Budget:
        """Where an answer is held."""
        return self._memory.answers if self.is_known else self._memory.first_answers

    @property
    def is_known(self) -> bool:
        """Whether this client reads, as far as one can tell."""
        return self._taken >= KNOWN_BYTES

    def note_answer(self, count: int, now_s: float | None) -> None:
        """An answer of so many bytes was written; no time: all of it was taken at once."""
        if now_s is not None:
            self._answer_bytes += count
            self._answer_pace.begin(now_s)
            self.answers.hold(self._owner, count)
        else:
            self._taken += count

    def note_taken(self) -> None:
        """All of it was taken."""
        self._answer_pace.end()
        if self._answer_bytes:
            count, self._answer_bytes = self._answer_bytes, 0
            self.answers.give_back(self._owner, count)
            self._taken += count

    # And all of it ends.

    def let_go(self) -> None:
        """Give back everything, and wait for nothing."""
        self._memory.requests.leave(self._owner)
        self.request_bytes += self._frame_bytes
        self._frame_bytes = 0
        self.note_served()
        self.note_taken()

    def end(self) -> None:
        """Let go for good: nothing refers to the owner any more, which refers to this."""
        self.let_go()
        self._owner = _NOBODY

    def stuck(self, arrived: int | None, unsent: int, now_s: float) -> str | None:
        """Why others who wait for memory should not wait for this one, if they should not.

        `arrived` is None while nothing is read.
        """
        taken = self._answer_bytes - unsent
        patience_s = SLOW_SECONDS if self.is_known else STRANGER_SECONDS
        if self._answer_pace.is_stuck(taken, now_s, patience_s) and self.answers.is_awaited:
            return f"an answer of {self._answer_bytes} bytes is not taken while others wait"
        if (
            arrived is not None
            and self._frame_bytes
            and self.frame_pace.is_stuck(arrived, now_s)
            and self._memory.requests.is_awaited
        ):
            return f"a frame does not get on after {arrived} bytes while others wait"
        return None


def mapped(size: int) -> memoryview:
    """Memory that is real as far as it is used, and the system's again when nobody refers to it."""
    return memoryview(mmap(-1, size))
