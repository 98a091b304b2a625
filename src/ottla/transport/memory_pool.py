"""The memory that the connections of a broker share, for requests and for responses.

`MemoryPool` bounds what all connections hold together; it counts and never allocates.
`ConnectionMemory` is the share of one connection. `MemoryWaiter` waits for a pool on behalf of one
response.

Invariant: a pool grants a reservation while it fits its limit, and one holder at a time may go
over the limit. Held bytes are thus at most the limit plus what one holder needs. That holder can
always finish, so there is no deadlock. Its excess takes nothing from the others.
Invariant: a frame that is larger than the whole limit gets memory only as that one holder, and
stays it until the frame is released: a part of such a frame would hold memory for nothing.
Invariant: the waiter with the lowest rank is served first. Clients that have completed large
requests come first, by the number of bytes that their frame still needs. Among the others the
newest frame comes first, so that clients that never complete a request cannot hold up one that
does. A quarter of the limit is reserved for frames of ordinary size, so that they do not wait for
huge ones, and half of that for clients that have completed large requests.
Invariant: a frame of ordinary size that had to wait claims all that it still needs, and nothing
with a higher rank gets memory before it. So it waits once.
Invariant: the beginnings of frames need no reservation, so they can hold more than the limit. Then
frames that wait are closed, for those of ordinary size. No frame waits longer than WAIT_SECONDS.
Invariant: what a connection reserved is released once: a request when it is served, a response
when the client has read it, everything when the connection closes.
"""

import asyncio
from math import inf
from mmap import mmap
from typing import Final, NamedTuple, Protocol

from ottla.clock import Clock
from ottla.protocol.buffer_pool import BufferPool
from ottla.protocol.frames import GROWTH, KEPT_BYTES_MAX, Framer, ReadBuffer

STALL_SECONDS: Final = 10.0
"""How long a transfer may hold memory without progress while others wait for memory."""

SILENT_SECONDS: Final = 2.0
"""How long a frame may hold memory while no byte of it arrives and others wait for memory."""

UNPROVEN_STALL_SECONDS: Final = 2.0
"""The same for a response to a client that has not yet shown that it reads."""

WAIT_SECONDS: Final = 30.0
"""How long a frame may wait for memory: the usual request.timeout.ms, after which clients leave."""

PROVEN_BYTES: Final = 8 * 1024 * 1024
"""A client that was sent this much does read. Two socket buffers hold less for a client that does
not: 4 MiB on our side, and what the client configured on its own."""

BYTES_PER_SECOND_MIN: Final = 64 * 1024
"""The slowest transfer that is tolerated."""

SPARE_BYTES_MAX: Final = 8 * 1024 * 1024
"""Memory of served frames kept for the next ones: eight of a producer's largest requests."""

READ_BUFFER_BYTES: Final = 128 * 1024
"""The most that is read at once: two of a producer's requests with default settings."""

ORDINARY_BYTES: Final = 1024 * 1024 + 64 * 1024
"""The largest request that a producer sends with default settings, and some headroom."""

_UNPROVEN_RANK: Final = 1 << 40  # above the size of every frame

_READ_RESERVE: Final = GROWTH * READ_BUFFER_BYTES  # the first memory of a frame, at most


class MemoryHolder(Protocol):
    """Holds memory of a pool, or waits for it."""

    def memory_available(self) -> None:
        """Try the reservation again: memory may be available."""
        ...


class _Claim(NamedTuple):
    rank: float  # the lowest is served first
    needed: int  # free bytes that have to be there, its own and those it leaves to others
    ordinary: bool = False  # higher ranks wait for it


class MemoryPool:
    """A number of bytes that all connections share."""

    __slots__ = (
        "_excess",
        "_privileged",
        "_until_released",
        "_waiting",
        "frames",
        "held",
        "kept",
        "limit",
    )

    def __init__(self, limit: int = 0, kept: int = 0) -> None:
        """A pool of `limit` bytes (unlimited if 0 or less), `kept` of them for ordinary frames."""
        self.limit = limit if limit > 0 else 1 << 62
        self.kept = kept
        self.held = 0
        self._privileged: MemoryHolder | None = None  # the one that may exceed the limit
        self._excess = 0  # what it holds over the limit
        self._until_released = False  # whether it keeps the privilege until its release
        self.frames = 0  # how many large frames have begun
        self._waiting: dict[MemoryHolder, _Claim] = {}

    @property
    def left(self) -> int:
        """The bytes that are free now."""
        return max(self.limit - self.held, 0)

    @property
    def has_waiters(self) -> bool:
        """Whether a holder waits for memory."""
        return bool(self._waiting)

    def has_memory(self, holder: MemoryHolder, count: int = 1) -> bool:
        """Whether the holder may reserve `count` bytes now, if need be over the limit."""
        return self._privileged is None or self._privileged is holder or self._fits(count)

    def _is_behind(self, holder: MemoryHolder, rank: float) -> bool:
        """Whether an ordinary frame with a lower rank waits."""
        return (
            bool(self._waiting)
            and self._privileged is not holder
            and any(
                claim.ordinary and claim.rank < rank and waiter is not holder
                for waiter, claim in self._waiting.items()
            )
        )

    def holds_up_others(self, holder: MemoryHolder, waited_s: float) -> bool:
        """Whether a waiting frame must be closed, because the memory of waiting frames is too much.

        A frame that is larger than ordinary makes way for all ordinary ones, and an ordinary one
        for those that are served before it, but later.
        """
        claim = self._waiting.get(holder)
        if claim is None or waited_s <= SILENT_SECONDS or self._fits(0):
            return False
        if claim.ordinary and waited_s <= STALL_SECONDS:
            return False
        return self._is_behind(holder, claim.rank if claim.ordinary else inf)

    def _fits(self, count: int) -> bool:
        return self.held - self._excess + count <= self.limit

    def reserve(
        self,
        holder: MemoryHolder,
        count: int,
        rest: int = 0,
        *,
        ordinary: bool = True,
        newness: int | None = None,
    ) -> bool:
        """Reserve `count` bytes; on False, `memory_available` is called when to try again.

        `rest` is what the frame needs to its end, this reservation included. `newness` is None if
        the client has completed large requests before, otherwise the number of the frame.
        """
        rank = rest if newness is None else _UNPROVEN_RANK - newness
        left_to_others = self.kept if not ordinary else 0 if newness is None else self.kept // 2
        wanted = count + left_to_others
        huge = rest + self.kept > self.limit
        needed = self.limit + 1 if huge else wanted  # never free: only the privileged holder
        if not self.has_memory(holder, needed) or self._is_behind(holder, rank):
            self._waiting[holder] = _Claim(rank, needed, ordinary)
            return False
        if huge:
            self._privileged, self._until_released = holder, True
        if not self._fits(wanted):
            self._privileged = holder
            self._excess += count
        self.held += count
        return True

    def hold(self, holder: MemoryHolder, count: int) -> None:
        """Count bytes that exist already, whether they fit or not."""
        if self._privileged is None and not self._fits(count):
            self._privileged = holder
            self._excess = count
        self.held += count

    def release(self, holder: MemoryHolder, count: int) -> None:
        """Release `count` bytes and wake the waiters whose claims fit now."""
        self.held -= count
        assert self.held >= 0, "released twice"
        fits = not self._until_released and self.held + self.kept <= self.limit
        if self._privileged is holder or fits:
            self._privileged = None
            self._excess = 0
            self._until_released = False
        if self._waiting:
            for waiter, claim in sorted(self._waiting.items(), key=_rank):
                if not self.has_memory(waiter, claim.needed):
                    if claim.ordinary:
                        break
                elif self._waiting.pop(waiter, None):
                    waiter.memory_available()

    def wait(self, holder: MemoryHolder, rank: float = 0) -> None:
        """Call `memory_available` of the holder when a byte is free."""
        assert not self.has_memory(holder), "memory is available: nothing would wake the holder"
        self._waiting[holder] = _Claim(rank, 1)

    def stop_waiting(self, holder: MemoryHolder) -> None:
        """Drop the holder's claim."""
        self._waiting.pop(holder, None)

    def wake_all(self) -> None:
        """Wake every waiter: the broker stops."""
        waiting, self._waiting = self._waiting, {}
        for waiter in waiting:
            waiter.memory_available()


def _rank(waiting: tuple[MemoryHolder, _Claim]) -> float:
    return waiting[1].rank


class MemoryPools:
    """The memory pools of a broker.

    Half of the memory for responses is for clients that have proven that they read, the other half
    for those that have not. Clients that read thus get memory however many do not. The other
    brokers have pools of their own, so that clients cannot hold up replication.
    """

    __slots__ = (
        "broker_requests",
        "broker_responses",
        "buffer_pool",
        "read_buffer",
        "requests",
        "responses",
        "unproven_responses",
    )

    def __init__(
        self, request_bytes: int = 0, response_bytes: int = 0, broker_response_bytes: int = 0
    ) -> None:
        self.requests = MemoryPool(request_bytes, request_bytes // 4)
        self.broker_requests = MemoryPool(request_bytes, request_bytes // 4)
        self.broker_responses = MemoryPool(broker_response_bytes)
        self.responses = MemoryPool(-(-response_bytes // 2))
        self.unproven_responses = MemoryPool(-(-response_bytes // 2))
        # A frame does not reserve spare memory that it reuses, so the pool is a small part too.
        limit = request_bytes // 4 if request_bytes > 0 else SPARE_BYTES_MAX
        self.buffer_pool = BufferPool(min(limit, SPARE_BYTES_MAX))
        self.read_buffer = ReadBuffer(READ_BUFFER_BYTES)

    @property
    def requests_held(self) -> int:
        """The bytes of all requests that are being received or served."""
        return self.requests.held + self.broker_requests.held

    @property
    def responses_held(self) -> int:
        """The bytes of all responses that clients and brokers have not read."""
        return self.responses.held + self.unproven_responses.held + self.broker_responses.held

    def wake_all(self) -> None:
        """Wake every response that waits for memory: the broker stops."""
        for pool in (self.responses, self.unproven_responses, self.broker_responses):
            pool.wake_all()


class Pace:
    """How fast one frame or one response moves, pauses excluded."""

    __slots__ = ("_mark_bytes", "_mark_s", "since_s")

    def __init__(self) -> None:
        self.since_s: float | None = None  # None: no transfer
        self._mark_s = 0.0
        self._mark_bytes = 0

    def begin(self, now_s: float) -> None:
        """Start the transfer."""
        self.since_s = self._mark_s = now_s
        self._mark_bytes = 0

    def end(self) -> None:
        """End the transfer."""
        self.since_s = None

    def skip(self, seconds: float) -> None:
        """Leave out a time in which the broker itself had paused the transfer."""
        if self.since_s is not None:
            self.since_s += seconds
            self._mark_s += seconds

    def allowed_s(self, moved: int) -> float:
        """Return how long a transfer of `moved` bytes may take."""
        return STALL_SECONDS + moved / BYTES_PER_SECOND_MIN

    def is_late(self, moved: int, now_s: float) -> bool:
        """Whether the transfer as a whole is too slow."""
        return self.since_s is not None and now_s - self.since_s > self.allowed_s(moved)

    def is_stalled(self, moved: int, now_s: float, seconds: float = STALL_SECONDS) -> bool:
        """Whether the transfer was too slow in the last `seconds`; the caller polls it."""
        if self.since_s is None:
            return False
        if moved - self._mark_bytes >= seconds * BYTES_PER_SECOND_MIN:
            self._mark_s, self._mark_bytes = now_s, moved
        return now_s - self._mark_s > seconds


class _NoHolder:
    def memory_available(self) -> None:
        """Do nothing: the connection is closed."""


_NO_HOLDER: Final = _NoHolder()


class ConnectionMemory:
    """The memory of one connection.

    A frame that is being read reserves memory before it allocates. Where that fails, `short` is
    true, the connection does not read, and the pool calls `memory_available` of the owner later.
    A response is held in the pool that the client has earned by what it has read before.
    """

    __slots__ = (
        "_complete_bytes",
        "_frame_bytes",
        "_frame_number",
        "_is_broker",
        "_owner",
        "_pools",
        "_read_bytes",
        "_requests",
        "_response_bytes",
        "_response_pace",
        "frame_pace",
        "request_bytes",
        "short",
    )

    def __init__(self, pools: MemoryPools, owner: MemoryHolder) -> None:
        self._pools = pools
        self._requests = pools.requests
        self._is_broker = False
        self._owner = owner
        self._frame_bytes = 0  # reserved for the frame that is being read
        self._frame_number = 0  # of that frame, in the order in which they began
        self._complete_bytes = 0  # of all large frames that were complete
        self.request_bytes = 0  # of frames that are complete, while their requests are served
        self._response_bytes = 0  # of responses that the client has not read
        self._read_bytes = 0  # of all responses that the client has read
        self.short = False
        self.frame_pace = Pace()
        self._response_pace = Pace()

    def use_broker_pools(self) -> None:
        """Use the memory for brokers from now on: the other end has logged in as one."""
        self.release_all()
        self._requests = self._pools.broker_requests
        self._is_broker = True

    @property
    def buffer_pool(self) -> BufferPool:
        """Memory of served frames, shared by all connections."""
        return self._pools.buffer_pool

    @property
    def read_buffer(self) -> ReadBuffer:
        """The buffer that all connections read into."""
        return self._pools.read_buffer

    @property
    def read_bytes_max(self) -> int:
        """How much to read at once: little while the pool for requests is nearly used up.

        What was read is kept even if the pool has no memory for it.
        """
        requests = self._requests
        left_to_others = 0 if self._completes_requests else requests.kept // 2
        short = requests.limit - requests.held < _READ_RESERVE + left_to_others
        return KEPT_BYTES_MAX if short else READ_BUFFER_BYTES

    def account_frame(self, framer: Framer) -> None:
        """Reserve what a large frame needs next; called when it begins, grows or ends."""
        requests = self._requests
        if framer.copied:
            self.hold_request(framer.copied)
            framer.copied = 0
        memory = framer.memory
        has_waited = self.short
        if has_waited:
            self.short = False
            requests.stop_waiting(self._owner)
        if not memory:
            self._complete_bytes += self._frame_bytes
            self.request_bytes += self._frame_bytes
            self._frame_bytes = 0
            return
        if not self._frame_bytes:
            requests.frames += 1
            self._frame_number = requests.frames
        if memory > self._frame_bytes:
            requests.held += memory - self._frame_bytes  # the first bytes need no reservation
            self._frame_bytes = memory
        growth = memory + framer.growth - self._frame_bytes
        if growth <= 0:
            return
        claimed = framer.claimed
        rest = claimed - self._frame_bytes
        ordinary = claimed <= ORDINARY_BYTES
        newness = None if self._completes_requests else self._frame_number
        count = rest if has_waited and ordinary else growth
        if requests.reserve(self._owner, count, rest, ordinary=ordinary, newness=newness):
            self._frame_bytes += count
            return
        self.short = True
        if ordinary and count < rest:
            requests.reserve(self._owner, rest, rest, ordinary=True, newness=newness)  # wait for it

    @property
    def _completes_requests(self) -> bool:
        """Whether the client has completed large requests."""
        return self._complete_bytes >= ORDINARY_BYTES

    def hold_request(self, count: int) -> None:
        """Count the memory of a complete request until it is served."""
        self._requests.hold(self._owner, count)
        self.request_bytes += count

    def release_request(self) -> None:
        """Release the frame of a request that was served."""
        count, self.request_bytes = self.request_bytes, 0
        self._requests.release(self._owner, count)

    @property
    def responses(self) -> MemoryPool:
        """The pool in which responses to this client are held."""
        if self._is_broker:
            return self._pools.broker_responses
        return self._pools.responses if self.is_proven else self._pools.unproven_responses

    @property
    def is_proven(self) -> bool:
        """Whether the client has shown that it reads its responses."""
        return self._is_broker or self._read_bytes >= PROVEN_BYTES

    def account_response(self, count: int, blocked_s: float | None) -> None:
        """Hold a response; `blocked_s` is None when the system took all of it at once."""
        if blocked_s is not None:
            self._response_bytes += count
            self._response_pace.begin(blocked_s)
            self.responses.hold(self._owner, count)
        else:
            self._read_bytes += count

    def release_response(self) -> None:
        """Release the responses: the client has read them."""
        self._response_pace.end()
        if self._response_bytes:
            count, self._response_bytes = self._response_bytes, 0
            self.responses.release(self._owner, count)
            self._read_bytes += count

    def release_all(self) -> None:
        """Release everything and stop waiting."""
        self._requests.stop_waiting(self._owner)
        self.request_bytes += self._frame_bytes
        self._frame_bytes = 0
        self.release_request()
        self.release_response()

    def close(self) -> None:
        """Release everything and drop the reference to the owner, which refers to this."""
        self.release_all()
        self._owner = _NO_HOLDER

    def stall_reason(
        self, arrived: int | None, unsent: int, now_s: float, silent_s: float = 0.0
    ) -> str | None:
        """Return why the connection must be closed for others that wait for memory, if it must.

        `arrived` is the size of the incomplete frame; None while the connection does not read.
        Nothing of it has arrived for `silent_s`.
        """
        read = self._response_bytes - unsent
        stall_s = STALL_SECONDS if self.is_proven else UNPROVEN_STALL_SECONDS
        if self._response_pace.is_stalled(read, now_s, stall_s) and self.responses.has_waiters:
            return f"response of {self._response_bytes} bytes not read while others wait for memory"
        if arrived is None or not self._frame_bytes:
            return None
        is_stalled = self.frame_pace.is_stalled(arrived, now_s) or silent_s > SILENT_SECONDS
        if is_stalled and self._requests.has_waiters:
            return f"request stalled after {arrived} bytes while others wait for memory"
        return None

    def wait_reason(self, waited_s: float) -> str | None:
        """Return why the connection must be closed whose frame waits for memory, if it must."""
        if waited_s > WAIT_SECONDS:
            return f"request has waited {WAIT_SECONDS:.0f} s for memory"
        if self._requests.holds_up_others(self._owner, waited_s):
            return f"request holds {self._frame_bytes} bytes, and waits for memory as others do"
        return None


class MemoryWaiter:
    """Waits for memory for one response.

    Clients that have proven that they read are served in order. Any number of others may wait, and
    most of them may never read. The newest of them is served first: otherwise a client that does
    read would wait as long as all those that do not.
    """

    __slots__ = ("_clock", "_rank", "_woken", "client", "has_waited", "pool")

    def __init__(self, client: ConnectionMemory, clock: Clock) -> None:
        self.client = client
        self.pool = client.responses
        self.has_waited = False
        self._clock = clock
        self._rank = 0.0
        self._woken: asyncio.Future[None] | None = None

    @property
    def has_memory(self) -> bool:
        """Whether the pool has memory now."""
        return self.pool.has_memory(self)

    async def wait(self, seconds: float) -> bool:
        """Wait until the pool may have memory; returns False after `seconds`."""
        if not self.has_waited:
            self.has_waited = True
            now_s = self._clock.elapsed_s()
            self._rank = now_s if self.client.is_proven else -now_s
        self._woken = asyncio.get_running_loop().create_future()
        self.pool.wait(self, self._rank)
        try:
            await asyncio.wait((self._woken,), timeout=max(seconds, 0))
        finally:
            self.pool.stop_waiting(self)
        return self._woken.done()

    def memory_available(self) -> None:
        """Wake the task that waits."""
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)


def mapped(size: int) -> memoryview:
    """Allocate memory by mmap: pages are real once touched, and returned when unreferenced."""
    return memoryview(mmap(-1, size))
