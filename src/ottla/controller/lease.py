"""Broker registration and controller election.

Invariant: a broker is registered by one session at a time (rule B1). There is one controller per
epoch (rule B2). A controller's change is committed only while its epoch is current (rule B3), so a
superseded controller changes nothing. After a ConnectionLoss nothing is assumed: the nodes are read
again (rule B6).
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, TypeVar

from ottla.cluster.registration import (
    Registration,
    format_counter,
    parse_counter,
    parse_registration,
)
from ottla.cluster.znodes import (
    BROKER_SEQUENCE,
    CONTROLLER,
    CONTROLLER_EPOCH,
    broker_path,
    counter_path,
    format_controller,
    parse_controller,
)
from ottla.coordination.errors import BadVersion, ConnectionLoss, NodeError, NodeExists, NoNode
from ottla.coordination.operations import (
    REQUEST_BYTES_MAX,
    Check,
    Create,
    Delete,
    Operation,
    SetData,
)
from ottla.coordination.session import Node, Session, Watch
from ottla.errors import OttlaError
from ottla.ids import BrokerEpoch, BrokerId, ControllerEpoch

T = TypeVar("T")

# Leaves room for the epoch check and for the overhead of each operation.
BATCH_BYTES_MAX: Final = REQUEST_BYTES_MAX // 2
_OPERATION_BYTES: Final = 100


class RegistrationRefused(OttlaError):
    """Another broker has this id."""


class Resigned(OttlaError):
    """Another broker has become the controller."""


async def ensure(session: Session, paths: Sequence[str]) -> None:
    """Create the nodes that are missing; list parents before their children."""
    for path in paths:
        if await session.exists(path) is None:
            with suppress(NodeExists):  # another session has created it meanwhile
                await session.create(path)


async def read_again(session: Session, paths: Sequence[str]) -> list[Node | None]:
    """Read nodes after a ConnectionLoss, with every change that was acknowledged before (B6)."""
    while True:
        await session.connected()
        with suppress(ConnectionLoss):
            await session.sync()
            return await session.get_all(paths)


async def generate_broker_id(session: Session, reserved_max: int) -> BrokerId:
    """Return an id that was never returned before, above those that operators can set.

    As in Kafka, the version of a node is the number of generated ids. An id is lost if the response
    is lost.
    """
    await ensure(session, ("/brokers", BROKER_SEQUENCE))
    return BrokerId(reserved_max + (await session.set(BROKER_SEQUENCE, b"")).version)


async def _never_answers(registration: Registration) -> bool:
    return False


async def register(
    session: Session,
    registration: Registration,
    answers: Callable[[Registration], Awaitable[bool]] = _never_answers,
) -> BrokerEpoch:
    """Register a broker for the lifetime of the session; return its broker epoch (rule B1).

    A registration that this session made already is kept. One that the same process made in an
    earlier session, or a dead process with the same data directories, is replaced. `answers` says
    whether the process of a registration answers at its address: then it lives, and has a copy of
    the directories. Raises RegistrationRefused if another process has the id.
    """
    path = broker_path(registration.broker.id)
    counter = counter_path(registration.broker.id)
    data = registration.format()
    nodes = await read_again(session, (path, counter))
    while True:
        found, count = nodes
        if found is not None and found.data == data and found.stat.ephemeral_owner == session.id:
            return BrokerEpoch(found.stat.czxid)
        operations: list[Operation] = []
        if found is not None:
            await _check_own(session, registration, found, answers)
            operations.append(Delete(path))
        operations += (Create(path, data, ephemeral=True), SetData(path, data))
        operations.append(_counted(counter, count, registration))
        # Another session may register, or the registration may end; then look again.
        with suppress(NodeExists, NoNode, BadVersion, ConnectionLoss):
            await session.multi(operations)
        nodes = await read_again(session, (path, counter))


async def _check_own(
    session: Session,
    registration: Registration,
    found: Node,
    answers: Callable[[Registration], Awaitable[bool]],
) -> None:
    """Refuse an id that another process has registered.

    A process that had the same data directories is dead, because this one holds their locks, unless
    the directories were copied.
    """
    broker = registration.broker.id
    other = parse_registration(found.data, broker, BrokerEpoch(found.stat.czxid))
    is_own = found.stat.ephemeral_owner == session.id
    if is_own or other.incarnation == registration.incarnation:
        return
    if not other.directories or not {*other.directories} <= {*registration.directories}:
        raise RegistrationRefused(
            f"broker id {broker} is already registered: set another node.id, or wait for the "
            "session to expire if this broker has just stopped"
        )
    if await answers(other):
        where = ", ".join(map(str, other.broker.addresses.values()))
        raise RegistrationRefused(
            f"broker id {broker} is registered by the broker at {where}, which answers and has the "
            "same directory ids: do not start a copy of its data directories"
        )


def _counted(path: str, found: Node | None, registration: Registration) -> Operation:
    """Return the operation that counts a registration; it fails if there was another meanwhile."""
    if found is None:
        return Create(path, format_counter(None, registration))
    last = parse_counter(found.data, path, BrokerEpoch(found.stat.mzxid))
    return SetData(path, format_counter(last, registration), found.stat.version)


class CurrentController(NamedTuple):
    """The broker that is the controller, and its controller epoch."""

    broker: BrokerId
    epoch: ControllerEpoch


class _Election(NamedTuple):
    """The nodes of the last election, read together."""

    controller: CurrentController
    owner: int  # the session that holds /controller
    version: int  # of the node /controller_epoch


class ControllerLease(NamedTuple):
    """The right to change the cluster as its controller, in one controller epoch."""

    session: Session
    epoch: ControllerEpoch
    version: int  # of the node /controller_epoch

    async def commit(self, operations: Sequence[Operation]) -> None:
        """Apply operations in one transaction while this epoch is current.

        Raises Resigned if it is not. After a ConnectionLoss the outcome is unknown.
        """
        try:
            await self.session.multi([Check(CONTROLLER_EPOCH, self.version), *operations])
        except NodeError as error:
            if error.path == CONTROLLER_EPOCH:
                raise Resigned(f"controller epoch {self.epoch} has ended") from error
            raise

    async def change(self, operations: Sequence[Operation]) -> None:
        """Commit operations, and find out what happened if the connection was lost (rule B6)."""
        while True:
            try:
                return await self.commit(operations)
            except ConnectionLoss:
                if await self._have_effect(operations):
                    return None

    async def change_all(self, operations: Sequence[Operation]) -> None:
        """Apply more operations than one transaction can hold, in order."""
        for batch in batches(operations, _operation_bytes):
            await self.change(batch)

    async def resign(self) -> None:
        """Give up the lease, so that another broker is elected at once."""
        with suppress(Resigned, NoNode):
            await self.change([Delete(CONTROLLER)])

    async def _have_effect(self, operations: Sequence[Operation]) -> bool:
        """Whether the nodes are as the operations leave them."""
        last = {one.path: one for one in operations if not isinstance(one, Check)}
        nodes = await read_again(self.session, list(last))
        return all(map(_has_effect, last.values(), nodes))


def _has_effect(operation: Operation, node: Node | None) -> bool:
    if isinstance(operation, Create | SetData):
        return node is not None and node.data == operation.data
    return node is None


async def elect_controller(
    session: Session, broker: BrokerId, now_ms: int, dead: CurrentController | None = None
) -> ControllerLease | None:
    """Become the controller; return None if another broker is (rule B2).

    After a conflict or a lost response, the broker is the controller only if /controller belongs
    to this session and /controller_epoch is the epoch that it wanted. A controller that is known
    to be dead is replaced before its session expires.
    """
    data = format_controller(broker, now_ms)
    wanted = ControllerEpoch(-1)
    while True:
        try:
            await ensure(session, (CONTROLLER_EPOCH,))
            found = await _last_election(session)
            if found is not None and found.controller != dead:
                is_mine = found.owner == session.id and found.controller == (broker, wanted)
                return ControllerLease(session, wanted, found.version) if is_mine else None
            if found is None:
                node = await session.get(CONTROLLER_EPOCH)
                last, version = _epoch(node), node.stat.version
            else:
                last, version = found.controller.epoch, found.version
            wanted = ControllerEpoch(last + 1)
            await session.multi(
                [
                    SetData(CONTROLLER_EPOCH, b"%d" % wanted, version),
                    *(() if found is None else (Delete(CONTROLLER),)),
                    Create(CONTROLLER, data, ephemeral=True),
                ]
            )
            return ControllerLease(session, wanted, version + 1)
        except (NodeExists, NoNode, BadVersion, ConnectionLoss):
            await read_again(session, ())


async def read_controller(session: Session, watch: Watch | None = None) -> CurrentController | None:
    """Return the controller, or None if there is none.

    The watch fires when the controller changes or ends, also after None (rule B7).
    """
    if watch is not None:
        await session.exists(CONTROLLER, watch)
    found = await _last_election(session)
    return None if found is None else found.controller


async def _last_election(session: Session) -> _Election | None:
    """Read /controller and its epoch; None if there is no controller."""
    paths = (CONTROLLER_EPOCH, CONTROLLER, CONTROLLER_EPOCH)
    while True:
        before, controller, after = await session.get_all(paths)
        if before is None or after is None or controller is None:
            return None
        if before.stat.version == after.stat.version:  # no election between the reads
            broker = parse_controller(controller.data)
            current = CurrentController(broker, ControllerEpoch(_epoch(after)))
            return _Election(current, controller.stat.ephemeral_owner, after.stat.version)


def _epoch(node: Node) -> int:
    return int(node.data or b"0")


def batches(
    items: Iterable[T], size_of: Callable[[T], int], room: int = BATCH_BYTES_MAX
) -> Iterator[list[T]]:
    """Split items into batches that fit into one transaction each."""
    batch: list[T] = []
    size = 0
    for item in items:
        needed = size_of(item)
        if batch and size + needed > room:
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += needed
    if batch:
        yield batch


def operations_bytes(operations: Iterable[Operation]) -> int:
    """Estimate the size of operations in a transaction."""
    return sum(map(_operation_bytes, operations))


def _operation_bytes(operation: Operation) -> int:
    data = len(operation.data) if isinstance(operation, Create | SetData) else 0
    return _OPERATION_BYTES + len(operation.path) + data
