"""The result of `ottla partition status`."""

from ottla.cli.output import Json
from ottla.cli.partition.cluster_replicas import ClusterReplicas, MoveAdmin, describe_replicas
from ottla.cli.partition.moves import followed, throttled_topics, unthrottled
from ottla.cli.result import Result, Table
from ottla.cli.topic.partition_load import bytes_shown
from ottla.client.partitions import Partition


async def waited(admin: MoveAdmin) -> None:
    """Wait until no reassignment is in progress, and remove throttles."""
    hosted = await describe_replicas(admin)
    sizes: dict[Partition, int] = {(one.topic, one.index): one.size_bytes for one in hosted.sizes()}
    moving = hosted.moving
    if moving:
        wanted = {key: sizes.get(key, 0) for key in moving}
        await followed(admin, wanted, {key: one.adding for key, one in moving.items()})
    if throttled := await throttled_topics(admin):
        await unthrottled(admin, throttled)


def progress_result(hosted: ClusterReplicas) -> Result:
    """Return the reassignments in progress."""
    sizes = {(one.topic, one.index): one.size_bytes for one in hosted.sizes()}
    on_disk = hosted.replica_sizes()
    objects: list[Json] = []
    rows: list[tuple[str, str, str, str, str]] = []
    for key, one in sorted(hosted.moving.items()):
        total = sizes.get(key, 0) * len(one.adding)
        copied = min(total, sum(on_disk.get((*key, broker), 0) for broker in one.adding))
        objects.append(
            {
                "topic": key[0],
                "partition": key[1],
                "replicas": [*one.replicas],
                "adding": [*one.adding],
                "removing": [*one.removing],
                "copied_bytes": copied,
                "total_bytes": total,
            }
        )
        rows.append(
            (
                f"{key[0]}-{key[1]}",
                _ids(one.replicas),
                _ids(one.adding),
                _ids(one.removing),
                f"{bytes_shown(copied)} of {bytes_shown(total)}",
            )
        )
    heads = ("PARTITION", "REPLICAS", "ADDING", "REMOVING", "COPIED")
    shown = [Table(heads, rows)] if rows else ["No reassignment is in progress."]
    return Result({"reassignments": objects}, shown)


def _ids(brokers: tuple[int, ...]) -> str:
    return ",".join(map(str, brokers)) or "-"
