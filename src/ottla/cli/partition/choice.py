"""Partitions and brokers that the arguments of a command name."""

from collections.abc import Iterable, Sequence

from ottla.cli.failures import Failed, Misused
from ottla.cli.offsets.partition_lists import Choice, NoSuchPartitions, chosen
from ottla.cli.partition.cluster_replicas import ClusterReplicas
from ottla.client.partitions import Partition, partition
from ottla.cluster.balance import BalancePlan, BrokerLoad, ReplicaMove
from ottla.ids import BrokerId

ID_MAX = (1 << 31) - 1


def brokers_of(text: str) -> list[BrokerId]:
    """Parse a list of broker ids. Raises Misused."""
    words = [one.strip() for one in text.split(",")]
    if any(not (one.isascii() and one.isdecimal()) or int(one) > ID_MAX for one in words):
        raise Misused(f'"{text}" is not a list of broker ids, as 1,2,3')
    found = [BrokerId(int(one)) for one in words]
    if len({*found}) < len(found):
        raise Misused(f'"{text}" has a broker twice')
    return found


def chosen_partitions(hosted: ClusterReplicas, choices: Iterable[Choice] | None) -> list[Partition]:
    """Return the partitions that a command names; all of the cluster for None."""
    known = {name: [one.index for one in topic.partitions] for name, topic in hosted.topics.items()}
    wanted = [Choice(name) for name in known] if choices is None else [*choices]
    for one in wanted:
        if one.topic not in known:
            raise Failed(f"topic {one.topic} does not exist", "UNKNOWN_TOPIC_OR_PARTITION")
    try:
        return chosen(wanted, known)
    except NoSuchPartitions as error:
        raise Failed(str(error), "UNKNOWN_TOPIC_OR_PARTITION") from None


def moved_to(
    hosted: ClusterReplicas, chosen: Sequence[Partition], targets: Sequence[BrokerId]
) -> BalancePlan:
    """Plan to move partitions to these brokers; the preferred leader changes in turn."""
    registered = {one.id for one in hosted.brokers}
    if unknown := [one for one in targets if one not in registered]:
        raise Failed(f"broker {unknown[0]} does not exist", "BROKER_NOT_AVAILABLE")
    if drained := [one for one in targets if hosted.is_drained(one)]:
        raise Failed(f"broker {drained[0]} is drained: use `ottla broker undrain {drained[0]}`")
    sizes = {(one.topic, one.index): one for one in hosted.sizes()}
    moves: list[ReplicaMove] = []
    for turn, (topic, index) in enumerate(chosen):
        one = sizes[topic, index]
        first = turn % len(targets)
        after = (*targets[first:], *targets[:first])
        if after != one.replicas or partition(topic, index) in hosted.moving:
            moves.append(ReplicaMove(topic, index, one.replicas, after, one.size_bytes))
    nothing: dict[BrokerId, BrokerLoad] = {}
    return BalancePlan(tuple(moves), nothing, nothing)
