"""The result of `ottla cluster status`."""

from collections.abc import Sequence

from ottla.cli.cluster.health import BrokerHealth, ClusterHealth
from ottla.cli.output import Json
from ottla.cli.result import Result, Table, facts
from ottla.cli.topic.partition_load import bytes_shown
from ottla.cluster.image import Address
from ottla.errors import ErrorCode

SHOWN_MAX = 10


def health_result(health: ClusterHealth) -> Result:
    """Return the health as an object and as a table."""
    rows = [
        (
            one.id,
            str(Address(one.host, one.port)),
            one.rack,
            one.version,
            one.id == health.controller,
            one.pid,
            one.leaders,
            one.replicas,
            one.skew,
            _unknown(one) if one.disk is None else bytes_shown(one.disk.used_bytes),
            bytes_shown(None if one.disk is None else one.disk.free_bytes),
        )
        for one in health.brokers
    ]
    heads = (
        "BROKER", "ADDRESS", "RACK", "VERSION", "CONTROLLER", "PID", "LEADERS", "REPLICAS", "SKEW",
        "DISK", "FREE",
    )  # fmt: skip
    counts = {
        "cluster": health.id,
        "controller": health.controller,
        "topics": health.topics,
        "partitions": health.partitions,
        "under-replicated": _counted(health.under_replicated),
        "offline": _counted(health.offline),
    }
    return Result(
        {
            "cluster": health.id,
            "controller": health.controller,
            "brokers": [_object(one) for one in health.brokers],
            "topics": health.topics,
            "partitions": health.partitions,
            "under_replicated": len(health.under_replicated),
            "under_replicated_partitions": health.under_replicated,
            "offline": len(health.offline),
            "offline_partitions": health.offline,
        },
        [*facts(counts), "", Table(heads, rows)],
    )


def _object(one: BrokerHealth) -> Json:
    disk = one.disk
    return {
        "id": one.id,
        "address": str(Address(one.host, one.port)),
        "rack": one.rack,
        "version": one.version,
        "pid": one.pid,
        "responds": disk is not None or one.refusal is not None,
        "error": None if one.refusal is None else one.refusal.name,
        "leaders": one.leaders,
        "replicas": one.replicas,
        "leader_skew": one.skew,
        "disk_bytes": None if disk is None else disk.used_bytes,
        "disk_free_bytes": None if disk is None else disk.free_bytes,
        "offline_directories": None if disk is None else disk.offline,
    }


def _unknown(one: BrokerHealth) -> str:
    """Return why the data directories of a broker are not known."""
    if one.refusal is None:
        return "no response"
    is_denied = one.refusal is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return "not authorized" if is_denied else one.refusal.name


def _counted(names: Sequence[str]) -> str:
    shown = ", ".join(names[:SHOWN_MAX]) + (", …" if len(names) > SHOWN_MAX else "")
    return f"{len(names)} ({shown})" if names else "0"
