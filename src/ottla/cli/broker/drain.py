"""Lists, drains and undrains the brokers of a cluster.

Invariant: a broker is drained if its setting cordoned.log.dirs excludes all its directories
(KIP-1066). The setting comes before the moves, so that no new replica arrives meanwhile.
"""

from collections import Counter
from typing import Final

from ottla.cli.cluster.health import disk_use
from ottla.cli.failures import Failed
from ottla.cli.output import Json
from ottla.cli.partition.cluster_replicas import ClusterReplicas, MoveAdmin, describe_replicas
from ottla.cli.partition.moves import Order, carried_out
from ottla.cli.result import Result, Table
from ottla.cli.session import Session
from ottla.cli.topic.partition_load import bytes_shown
from ottla.client.admin.configs import ConfigResource
from ottla.cluster.balance import plan_drain
from ottla.cluster.image import Address

CORDONED: Final = "cordoned.log.dirs"


def brokers_result(hosted: ClusterReplicas) -> Result:
    """Return the brokers as an object and as a table."""
    partitions = [one for topic in hosted.topics.values() for one in topic.partitions]
    leaders = Counter(one.leader for one in partitions)
    replicas = Counter(broker for one in partitions for broker in one.replicas)
    objects: list[Json] = []
    rows: list[tuple[str | int | bool | None, ...]] = []
    for one in hosted.brokers:
        directories = hosted.directories.get(one.id)
        disk = None if directories is None else disk_use(directories)
        address, is_drained = str(Address(one.host, one.port)), hosted.is_drained(one.id)
        is_controller = one.id == hosted.cluster.controller
        objects.append(
            {
                "id": one.id,
                "address": address,
                "rack": one.rack,
                "controller": is_controller,
                "drained": is_drained,
                "responds": disk is not None,
                "leaders": leaders[one.id],
                "replicas": replicas[one.id],
                "disk_bytes": None if disk is None else disk.used_bytes,
                "disk_free_bytes": None if disk is None else disk.free_bytes,
            }
        )
        rows.append(
            (
                one.id,
                address,
                one.rack,
                is_controller,
                is_drained,
                leaders[one.id],
                replicas[one.id],
                "no response" if disk is None else bytes_shown(disk.used_bytes),
            )
        )
    heads = (
        "BROKER", "ADDRESS", "RACK", "CONTROLLER", "DRAINED", "LEADERS", "REPLICAS", "DISK",
    )  # fmt: skip
    return Result({"brokers": objects}, [Table(heads, rows)])


async def drained(session: Session, admin: MoveAdmin, broker: int, order: Order) -> Result:
    """Show the plan that empties a broker and, if the user wants that, execute it."""
    hosted = await describe_replicas(admin)
    is_registered = any(one.id == broker for one in hosted.brokers)
    sizes = hosted.sizes()
    if not is_registered and not any(broker in one.replicas for one in sizes):
        raise _unknown(broker)
    plan = plan_drain(hosted.places([broker]), sizes)
    if order.execute and is_registered:
        await _set(admin, broker, "*")
    more: dict[str, Json] = {"broker": broker, "drained": order.execute and is_registered}
    return await carried_out(session, admin, hosted, plan, order, more)


async def undrained(admin: MoveAdmin, broker: int) -> Result:
    """Let a broker get replicas again."""
    cluster = await admin.describe_cluster()
    if all(one.id != broker for one in cluster.brokers):
        raise _unknown(broker)
    await _set(admin, broker, None)
    return Result(
        {"broker": broker, "drained": False},
        [f"Broker {broker} gets new replicas again. `ottla cluster balance` moves some to it."],
    )


async def _set(admin: MoveAdmin, broker: int, value: str | None) -> None:
    (await admin.alter_configs({ConfigResource.broker(broker): {CORDONED: value}})).or_raise()


def _unknown(broker: int) -> Failed:
    return Failed(f"broker {broker} does not exist", "BROKER_NOT_AVAILABLE")
