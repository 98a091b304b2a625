"""The memory that all connections of a broker share: for requests, and for answers.

Invariant: what is asked for is given while it fits, and beyond that to one at a time. So what is
held is at most the limit, what one of them needs, and what needs no asking; and as that one is
always let go on, there is no deadlock. What it has beyond the limit takes no room from the others.
What can only end beyond the limit is given nothing before it is that one, which it is to its end:
a part of it would be held for nothing.
Of those who have to wait, the lowest rank goes on first: for a frame, what it needs to end. A part
of the limit is kept for what is of ordinary size, so that it need not wait for what is huge.

Nothing here allocates: connections tell what they hold and what they give back.

What one connection holds of the memory that all of them share.

Invariant: what was held is given back once: for a request when it is served, for an answer when
the client has taken it, and all of it when the connection goes. A frame that is coming holds its
memory before it gets it; when there is none it is `short`, nothing is read for it, and `go_on` of
its owner is called when there is. An answer is held in the memory that its client has earned by
what it took before.

A place in the line of those who wait for memory for an answer.

Invariant: whoever waits is told at most once for each wait, and is out of the line when the wait
is over, however it ended. Who is known to read waits for its turn. Of the others there may be any
number, so the newest goes first: else all of them would wait for too long, and whoever reads with
them.
"""

import asyncio
from mmap import mmap
from typing import Final, NamedTuple, Protocol

from ottla.clock import Clock
from ottla.protocol.frames import Framer
from ottla.protocol.spares import Spares

SLOW_SECONDS: Final = 10.0
"""How long a transfer may hold memory without moving while others wait for it."""

STRANGER_SECONDS: Final = 2.0
"""How long the answer of one that has never shown that it reads may do so."""

KNOWN_BYTES: Final = 8 * 1024 * 1024
"""Whoever was sent so much reads: two systems hold less of it for one that does not, 4 MiB in ours
and what the client set for its own."""

BYTES_PER_SECOND_MIN: Final = 64 * 1024
"""The slowest that is put up with."""

SPARE_BYTES_MAX: Final = 8 * 1024 * 1024
"""Of frames that were served, for those that come: eight requests of a producer's largest."""


class MemoryHolder(Protocol):
    """Who holds memory, or waits for it."""

    def go_on(self) -> None:
        """There may be room now."""
        ...


class _Wish(NamedTuple):
    rank: float  # whoever has the lowest goes on first
    room: int  # what it wants now, and what it has to leave


class MemoryPool:
    """So many bytes, for everybody."""

    __slots__ = ("_ahead", "_beyond", "_to_its_end", "_waiting", "held", "kept", "limit")

    def __init__(self, limit: int = 0, kept: int = 0) -> None:
        self.limit = limit if limit > 0 else 1 << 62  # 0 and less: as much as there is
        self.kept = kept  # of it for what is of ordinary size
        self.held = 0
        self._ahead: MemoryHolder | None = None  # who may hold more than there is
        self._beyond = 0  # what it holds beyond the limit
        self._to_its_end = False  # whether it stays that until it gives back what it has
        self._waiting: dict[MemoryHolder, _Wish] = {}

    @property
    def left(self) -> int:
        """What can be had at once."""
        return max(self.limit - self.held, 0)

    @property
    def is_awaited(self) -> bool:
        """Whether somebody has to wait."""
        return bool(self._waiting)

    def has_room(self, who: MemoryHolder, count: int = 1) -> bool:
        """Whether so many bytes may be held now, be it as the one who may hold too much."""
        return self._ahead is None or self._ahead is who or self._fits(count)

    def _fits(self, count: int) -> bool:
        return self.held - self._beyond + count <= self.limit

    def take(self, who: MemoryHolder, count: int, rest: int = 0, *, ordinary: bool = True) -> bool:
        """Hold so many bytes more; or be told to go on when that may be, and ask again."""
        wanted = count if ordinary else count + self.kept
        huge = rest + self.kept > self.limit
        room = self.limit + 1 if huge else wanted  # more than there ever is
        if not self.has_room(who, room):
            self._waiting[who] = _Wish(rest, room)
            return False
        if huge:
            self._ahead, self._to_its_end = who, True
        if not self._fits(wanted):
            self._ahead = who
            self._beyond += count
        self.held += count
        return True

    def hold(self, who: MemoryHolder, count: int) -> None:
        """So many bytes more are there, whether there is room or not."""
        if self._ahead is None and not self._fits(count):
            self._ahead = who
            self._beyond = count
        self.held += count

    def give_back(self, who: MemoryHolder, count: int) -> None:
        """They are not there any more; who waits for them goes on."""
        self.held -= count
        assert self.held >= 0, "given back twice"
        fits = not self._to_its_end and self.held + self.kept <= self.limit
        if self._ahead is who or fits:
            self._ahead = None
            self._beyond = 0
            self._to_its_end = False
        if self._waiting:
            for one, wish in sorted(self._waiting.items(), key=_rank):
                if self.has_room(one, wish.room) and self._waiting.pop(one, None) is not None:
                    one.go_on()

    def wait(self, who: MemoryHolder, rank: float = 0) -> None:
        """Be told when something may be held."""
        assert not self.has_room(who), "nobody would tell"
        self._waiting[who] = _Wish(rank, 1)

    def leave(self, who: MemoryHolder) -> None:
        """Wait no more."""
        self._waiting.pop(who, None)

    def let_all_go_on(self) -> None:
        """Let everybody look again: the broker stops."""
        waiting, self._waiting = self._waiting, {}
        for one in waiting:
            one.go_on()


def _rank(waiting: tuple[MemoryHolder, _Wish]) -> float:
    return waiting[1].rank


class MemoryPools:
    """The budgets of a broker.

    Half of the memory for answers is for connections that are known to read, and the other half for
    those that are not yet: so whoever takes its answers has room, however many do not.
    """

    __slots__ = ("answers", "first_answers", "requests", "spares")

    def __init__(self, request_bytes: int = 0, answer_bytes: int = 0) -> None:
        self.requests = MemoryPool(request_bytes, request_bytes // 4)
        self.answers = MemoryPool(-(-answer_bytes // 2))
        self.first_answers = MemoryPool(-(-answer_bytes // 2))
        # A frame that gets spare memory does not ask for it: a small part of the limit, too.
        limit = request_bytes // 4 if request_bytes > 0 else SPARE_BYTES_MAX
        self.spares = Spares(min(limit, SPARE_BYTES_MAX))

    @property
    def answers_held(self) -> int:
        """By whomever."""
        return self.answers.held + self.first_answers.held


class Pace:
    """How fast one frame or one answer moves, pauses aside."""

    __slots__ = ("_mark_bytes", "_mark_s", "since_s")

    def __init__(self) -> None:
        self.since_s: float | None = None  # None: nothing is on its way
        self._mark_s = 0.0
        self._mark_bytes = 0

    def begin(self, now_s: float) -> None:
        """The first bytes are there."""
        self.since_s = self._mark_s = now_s
        self._mark_bytes = 0

    def end(self) -> None:
        """All of it is there."""
        self.since_s = None

    def skip(self, seconds: float) -> None:
        """So long nothing could move, and it was not the other's fault."""
        if self.since_s is not None:
            self.since_s += seconds
            self._mark_s += seconds

    def allowed_s(self, moved: int) -> float:
        """How long so many bytes may take."""
        return SLOW_SECONDS + moved / BYTES_PER_SECOND_MIN

    def is_late(self, moved: int, now_s: float) -> bool:
        """Whether that was too slow all in all."""
        return self.since_s is not None and now_s - self.since_s > self.allowed_s(moved)

    def is_stuck(self, moved: int, now_s: float, seconds: float = SLOW_SECONDS) -> bool:
        """Whether it was too slow in the last so many seconds; to be asked now and then."""
        if self.since_s is None:
            return False
        if moved - self._mark_bytes >= seconds * BYTES_PER_SECOND_MIN:
            self._mark_s, self._mark_bytes = now_s, moved
        return now_s - self._mark_s > seconds


ORDINARY_BYTES: Final = 1024 * 1024 + 64 * 1024
"""What a producer sends at most by default, and something around it."""


class _Nobody:
    def go_on(self) -> None:
        """Nobody waits."""


_NOBODY: Final = _Nobody()


class ConnectionMemory:
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

    def __init__(self, memory: MemoryPools, owner: MemoryHolder) -> None:
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
    def answers(self) -> MemoryPool:
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


class MemoryWaiter:
    """The memory for one answer."""

    __slots__ = ("_clock", "_rank", "_told", "client", "has_waited", "memory")

    def __init__(self, client: ConnectionMemory, clock: Clock) -> None:
        self.client = client
        self.memory = client.answers
        self.has_waited = False
        self._clock = clock
        self._rank = 0.0
        self._told: asyncio.Future[None] | None = None

    @property
    def is_there(self) -> bool:
        """Whether something may be held now."""
        return self.memory.has_room(self)

    async def wait(self, seconds: float) -> bool:
        """Wait until there may be some; tells whether that was in time."""
        if not self.has_waited:
            self.has_waited = True
            now_s = self._clock.elapsed_s()
            self._rank = now_s if self.client.is_known else -now_s
        self._told = asyncio.get_running_loop().create_future()
        self.memory.wait(self, self._rank)
        try:
            await asyncio.wait((self._told,), timeout=max(seconds, 0))
        finally:
            self.memory.leave(self)
        return self._told.done()

    def go_on(self) -> None:
        """There may be memory."""
        if self._told is not None and not self._told.done():
            self._told.set_result(None)
