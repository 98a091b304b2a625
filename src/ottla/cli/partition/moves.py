"""Shows, starts and follows reassignments.

Invariant: nothing changes before the plan is shown. A throttle that a command sets is removed when
no reassignment is left; an interrupted command leaves reassignment and throttle as they are, and
says so.
"""

import asyncio
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.cli.escapes import escaped
from ottla.cli.failures import failure_of
from ottla.cli.output import Json, Output
from ottla.cli.partition.cluster_replicas import RESPONSE_SECONDS, ClusterReplicas, MoveAdmin
from ottla.cli.partition.throttles import (
    FOLLOWER_REPLICAS,
    LEADER_REPLICAS,
    broker_throttles,
    copies,
    no_throttles,
    topic_throttles,
)
from ottla.cli.progress import progress
from ottla.cli.result import Failure, Result, Table, complain, is_colored
from ottla.cli.session import Session
from ottla.cli.topic.partition_load import bytes_shown
from ottla.client.admin.configs import ConfigResource
from ottla.client.admin.reassignments import Election, Reassignment
from ottla.client.calls.results import Results
from ottla.client.partitions import Partition, partition
from ottla.cluster.balance import BalancePlan, ReplicaMove
from ottla.errors import ErrorCode, RequestError

POLL_SECONDS_MIN: Final = 0.05
POLL_SECONDS_MAX: Final = 1.0
CONTINUES: Final = (
    "the reassignment continues: `ottla partition status --wait` waits for its end, `ottla "
    "partition cancel --all` cancels it"
)


class Order(NamedTuple):
    """How to carry out a plan."""

    execute: bool
    throttle: int | None
    wait: bool


async def carried_out(
    session: Session,
    admin: MoveAdmin,
    hosted: ClusterReplicas,
    plan: BalancePlan,
    order: Order,
    more: Mapping[str, Json] | None = None,
    heading: Sequence[Table | str] = (),
) -> Result:
    """Show a plan and, if the user wants that, execute it and wait for its end."""
    if session.output is Output.TABLE:
        _print([*heading, *plan_shown(plan)])
    failures: list[Failure] = []
    started: list[ReplicaMove] = []
    state = "nothing to do" if not plan.moves else "planned"
    if order.execute and plan.moves:
        told = await _start(admin, hosted, plan.moves, order.throttle)
        failures = [failure_of(error, str(partition(*one))) for one, error in told.failed.items()]
        started = [one for one in plan.moves if one.key in told.succeeded]
        state = "started"
        if order.wait and started:
            await _follow(admin, started, is_throttled=order.throttle is not None)
            state = "complete"
    value: dict[str, Json] = {
        **(more or {}),
        "state": state,
        "moves": [move_object(one) for one in plan.moves],
        "moved_bytes": plan.moved_bytes,
        "started": len(started),
    }
    return Result(value, [_outcome(plan, started, state)], failures)


def plan_shown(plan: BalancePlan) -> list[Table | str]:
    """Return a plan as a table."""
    if not plan.moves:
        return []
    rows = [
        (
            f"{one.topic}-{one.index}",
            _ids(one.before),
            _ids(one.after),
            bytes_shown(one.moved_bytes),
        )
        for one in plan.moves
    ]
    return [Table(("PARTITION", "REPLICAS", "NEW REPLICAS", "COPY"), rows), ""]


def move_object(one: ReplicaMove) -> Json:
    """Return a move for programs."""
    return {
        "topic": one.topic,
        "partition": one.index,
        "replicas": [*one.before],
        "new_replicas": [*one.after],
        "moved_bytes": one.moved_bytes,
    }


def _outcome(plan: BalancePlan, started: Sequence[ReplicaMove], state: str) -> str:
    size = bytes_shown(plan.moved_bytes)
    match state:
        case "nothing to do":
            return "Nothing to do."
        case "planned":
            what = _partitions(len(plan.moves))
            return f"{what}, {size} to copy. Nothing was changed: pass --execute."
        case "complete":
            return f"Reassigned {_partitions(len(started))}, {size} copied."
        case _:
            return (
                f"Started to reassign {_partitions(len(started))}, {size} to copy. "
                "`ottla partition status` shows the progress."
            )


def _partitions(count: int) -> str:
    return f"{count} {'partition' if count == 1 else 'partitions'}"


def _ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))


def _print(shown: Iterable[Table | str]) -> None:
    for one in shown:
        lines = one.lines(colored=is_colored()) if isinstance(one, Table) else (escaped(one),)
        sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stdout.flush()


async def _start(
    admin: MoveAdmin, hosted: ClusterReplicas, moves: Sequence[ReplicaMove], throttle: int | None
) -> Results[Partition, None]:
    wanted = {one.key: one.after for one in moves}
    if throttle is not None:
        current = {one.key: one.before for one in moves}
        found = copies(hosted.moving, wanted, current)
        (await admin.alter_configs(broker_throttles(found, throttle))).or_raise()
        (await admin.alter_configs(topic_throttles(found))).or_raise()
    return await admin.alter_reassignments(wanted)


async def _follow(admin: MoveAdmin, moves: Sequence[ReplicaMove], *, is_throttled: bool) -> None:
    """Wait until reassignments are complete, then remove their throttle."""
    sizes = {one.key: one.size_bytes for one in moves}
    adding = {one.key: one.adding for one in moves}
    try:
        await followed(admin, sizes, adding)
    except asyncio.CancelledError:
        complain(CONTINUES)
        raise
    if is_throttled:
        await unthrottled(admin, {one.topic for one in moves})
    changed = [one.key for one in moves if one.after[0] != one.before[0]]
    if changed:  # the controller would elect them later, if auto.leader.rebalance.enable is set
        told = await admin.elect_leaders(Election.PREFERRED, changed)
        for key, error in told.failed.items():
            complain(f"warning: {partition(*key)}: the leader has not changed: {error}")


async def followed(
    admin: MoveAdmin,
    sizes: Mapping[Partition, int],
    adding: Mapping[Partition, Sequence[int]],
) -> None:
    """Wait until the reassignments of partitions are complete, with a progress bar."""
    total = sum(size * len(adding[key]) for key, size in sizes.items())
    keys: list[Partition] = [*sizes]
    pause_s, shown = POLL_SECONDS_MIN, 0
    with progress(total or len(keys), in_bytes=bool(total)) as advance:
        while moving := await admin.list_reassignments(keys):
            copied = await copied_bytes(admin, moving) if total else {}
            done = 0
            for key, size in sizes.items():
                if key in moving:
                    copy = min(copied.get(key, 0), size * len(adding[key]))
                    done += copy if total else 0
                else:
                    done += size * len(adding[key]) if total else 1
            advance(max(0, done - shown))
            shown = max(shown, done)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, POLL_SECONDS_MAX)


async def copied_bytes(
    admin: MoveAdmin, moving: Mapping[Partition, Reassignment]
) -> dict[Partition, int]:
    """Return the bytes that the new replicas have."""
    brokers = {broker for one in moving.values() for broker in one.adding}
    if not brokers:
        return {}
    told = await admin.describe_log_dirs(brokers, [*moving], timeout_s=RESPONSE_SECONDS)
    found: dict[Partition, int] = {}
    for broker, directories in told.succeeded.items():
        for directory in directories.succeeded.values():
            for key, size in directory.replicas.items():
                if key in moving and broker in moving[key].adding:
                    found[key] = found.get(key, 0) + size.size_bytes
    return found


async def unthrottled(admin: MoveAdmin, topics: Collection[str]) -> bool:
    """Remove the throttles of reassignments; not while one is in progress. Returns whether."""
    if await admin.list_reassignments():
        return False
    brokers = [one.id for one in (await admin.describe_cluster()).brokers]
    changes = no_throttles(topics, brokers)
    told = await admin.alter_configs(changes)
    for resource, error in told.failed.items():
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # deleted in the meantime
            raise RequestError(error.code, f"{resource}: {error.message}")
    return True


async def throttled_topics(admin: MoveAdmin) -> list[str]:
    """Return the topics with throttled replicas."""
    names = [*await admin.list_topics(include_internal=True)]
    told = await admin.describe_configs(
        [ConfigResource.topic(name) for name in names], names=(LEADER_REPLICAS, FOLLOWER_REPLICAS)
    )
    return [
        resource.name
        for resource, entries in told.succeeded.items()
        if any(one.value for one in entries.values())
    ]
