"""Broker registration and controller election.

Invariant: a broker is registered by one session at a time (rule B1). There is one controller per
epoch (rule B2). A controller's change is committed only while its epoch is current (rule B3), so a
superseded controller changes nothing.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from ottla.cluster.image import Broker
from ottla.cluster.znodes import BROKER_IDS, CONTROLLER, CONTROLLER_EPOCH
from ottla.coordination.errors import BadVersion, NodeError, NodeExists, NoNode
from ottla.coordination.operations import REQUEST_BYTES_MAX, Check, Create, Operation, SetData
from ottla.coordination.session import Session
from ottla.errors import OttlaError
from ottla.ids import BrokerEpoch, BrokerId, ControllerEpoch

# Leaves room for the epoch check and for the overhead of each operation.
_BATCH_BYTES_MAX: Final = REQUEST_BYTES_MAX // 2
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


async def register(
    session: Session, broker: Broker, protocols: dict[str, str], now_ms: int
) -> BrokerEpoch:
    """Register a broker for the lifetime of the session; return its broker epoch."""
    path = f"{BROKER_IDS}/{broker.id}"
    data = _registration(broker, protocols, now_ms)
    for _ in range(2):
        try:
            await session.multi([Create(path, data, ephemeral=True), SetData(path, data)])
            break
        except NodeExists:
            await _make_way(session, path, broker.id)
    else:
        raise RegistrationRefused(f"broker id {broker.id} is already registered")
    return BrokerEpoch((await session.get(path)).stat.czxid)


async def _make_way(session: Session, path: str, broker: BrokerId) -> None:
    """Delete an earlier registration of the same session; refuse another session's."""
    try:
        found = await session.get(path)
    except NoNode:
        return
    if found.stat.ephemeral_owner != session.id:
        raise RegistrationRefused(
            f"broker id {broker} is already registered: set another node.id, or wait for the "
            "session to expire if this broker has just stopped"
        )
    await session.delete(path, found.stat.version)


def _registration(broker: Broker, protocols: dict[str, str], now_ms: int) -> bytes:
    first = next(iter(broker.addresses.values()))
    value: dict[str, Any] = {
        "version": 5,
        "host": first.host,
        "port": first.port,
        "jmx_port": -1,
        "timestamp": str(now_ms),
        "endpoints": [f"{name}://{address}" for name, address in broker.addresses.items()],
        "listener_security_protocol_map": protocols,
        "features": {},
        **({"rack": broker.rack} if broker.rack is not None else {}),
    }
    return json.dumps(value, separators=(",", ":")).encode()


class ControllerLease(NamedTuple):
    """The right to change the cluster as its controller, in one controller epoch."""

    session: Session
    epoch: ControllerEpoch
    version: int  # of the node /controller_epoch

    async def change(self, operations: Sequence[Operation]) -> None:
        """Apply operations in one transaction while this epoch is current."""
        try:
            await self.session.multi([Check(CONTROLLER_EPOCH, self.version), *operations])
        except NodeError as error:
            if error.path == CONTROLLER_EPOCH:
                raise Resigned(f"controller epoch {self.epoch} has ended") from error
            raise

    async def change_all(self, operations: Sequence[Operation]) -> None:
        """Apply more operations than one transaction can hold, in order."""
        for batch in _batches(operations):
            await self.change(batch)


async def elect_controller(
    session: Session, broker: BrokerId, now_ms: int
) -> ControllerLease | None:
    """Become the controller; return None if another broker is."""
    await ensure(session, (CONTROLLER_EPOCH,))
    found = await session.get(CONTROLLER_EPOCH)
    epoch = ControllerEpoch(int(found.data or b"0") + 1)
    data = json.dumps({"version": 2, "brokerid": broker, "timestamp": str(now_ms)}).encode()
    try:
        await session.multi(
            [
                Create(CONTROLLER, data, ephemeral=True),
                SetData(CONTROLLER_EPOCH, b"%d" % epoch, found.stat.version),
            ]
        )
    except (NodeExists, BadVersion):
        return None
    return ControllerLease(session, epoch, found.stat.version + 1)


def _batches(operations: Sequence[Operation]) -> Iterator[list[Operation]]:
    batch: list[Operation] = []
    size = 0
    for operation in operations:
        needed = _OPERATION_BYTES + len(operation.path)
        if isinstance(operation, Create | SetData):
            needed += len(operation.data)
        if batch and size + needed > _BATCH_BYTES_MAX:
            yield batch
            batch, size = [], 0
        batch.append(operation)
        size += needed
    if batch:
        yield batch
