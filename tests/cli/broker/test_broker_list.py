"""The list of brokers and the progress of reassignments, from descriptions."""

from contextlib import redirect_stdout
from io import StringIO

from cases import each_case
from cli.golden import check_golden
from ottla.cli.broker.drain import brokers_result
from ottla.cli.output import Output
from ottla.cli.partition.cluster_replicas import ClusterReplicas
from ottla.cli.partition.progress_view import progress_result
from ottla.cli.result import show
from ottla.client.admin.cluster import BrokerDescription, ClusterDescription
from ottla.client.admin.log_dirs import LogDirDescription, LogDirs, ReplicaSize
from ottla.client.admin.reassignments import Reassignment
from ottla.client.admin.topic_descriptions import PartitionDescription, TopicDescription
from ottla.ids import TopicPartition

ORDERS = TopicPartition("orders", 0)


def directory(size: int, *, is_cordoned: bool = False) -> LogDirs:
    found = LogDirDescription(
        "/data", {ORDERS: ReplicaSize(size, 0, is_future=False)}, 1 << 40, 1 << 39, is_cordoned
    )
    return LogDirs({"/data": found})


SURVEY = ClusterReplicas(
    ClusterDescription(
        "id",
        2,
        (
            BrokerDescription(1, "a", 9092, "north"),
            BrokerDescription(2, "::1", 9092),
            BrokerDescription(3, "c", 9092),
        ),
    ),
    {
        "orders": TopicDescription(
            "orders", None, False, (PartitionDescription(0, 1, 0, (1, 2, 3), (1, 2), ()),)
        )
    },
    {ORDERS: Reassignment((1, 3, 2), adding=(3,), removing=(2,))},
    {1: directory(3000), 2: directory(2000, is_cordoned=True)},
)


@each_case("form", ["json", "txt"])
def test_golden_output(form: str) -> None:
    for name, result in (
        ("broker-list", brokers_result(SURVEY)),
        ("partition-status", progress_result(SURVEY)),
    ):
        shown = StringIO()
        with redirect_stdout(shown):
            show(result, Output.JSON if form == "json" else Output.TABLE)
        check_golden(f"{name}.{form}", shown.getvalue())


def test_plan_has_the_target_of_a_reassignment_and_the_size_of_the_leader() -> None:
    (one,) = SURVEY.sizes()
    assert (one.replicas, one.size_bytes) == ((1, 3), 3000)
    assert [one.is_leaving for one in SURVEY.places([3])] == [False, True, True]
