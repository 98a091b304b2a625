"""The health of a cluster, from descriptions."""

from contextlib import redirect_stdout
from io import StringIO

from cases import each_case
from cli.golden import check_golden
from ottla.cli.cluster.health import (
    ClusterHealth,
    DiskUse,
    broker_health,
    partitions_where,
    refusals,
)
from ottla.cli.cluster.health_view import health_result
from ottla.cli.output import Output
from ottla.cli.result import show
from ottla.client.admin.cluster import BrokerDescription
from ottla.client.admin.topic_descriptions import PartitionDescription, TopicDescription
from ottla.errors import ErrorCode, RequestError
from ottla.transport.failures import TimedOut

DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
BROKERS = (
    BrokerDescription(1, "a", 9092, "north"),
    BrokerDescription(2, "b", 9092),
    BrokerDescription(3, "c", 9092),
)
TOPICS = [
    TopicDescription(
        "orders",
        None,
        False,
        (
            PartitionDescription(0, 1, 0, (1, 2, 3), (1, 2, 3), ()),
            PartitionDescription(1, 1, 0, (1, 2), (1,), (2,)),
            PartitionDescription(2, None, None, (3,), (3,), (3,)),
        ),
    )
]


def health() -> ClusterHealth:
    disks, pids = {1: DiskUse(3000, 1 << 31, 0)}, {1: 77, 2: None}
    refused = refusals({2: TimedOut("no response"), 3: RequestError(DENIED)})
    brokers = broker_health(BROKERS, TOPICS, disks, pids, refused, {1: "0.1", 3: "0.2"})
    return ClusterHealth(
        "id",
        2,
        brokers,
        1,
        3,
        partitions_where(TOPICS, offline=False),
        partitions_where(TOPICS, offline=True),
    )


def test_leaders_replicas_and_skew_are_counted_per_broker() -> None:
    found = health().brokers
    assert [(one.leaders, one.replicas, one.skew) for one in found] == [
        (2, 2, 3.0),
        (0, 2, 0.0),
        (0, 2, 0.0),
    ]
    assert [one.pid for one in found] == [77, None, None]


def test_brokers_without_partitions_have_no_skew() -> None:
    assert broker_health(BROKERS, [], {}, {})[0].skew is None
    assert broker_health([], TOPICS, {}, {}) == []


@each_case("form", ["json", "txt"])
def test_golden_output(form: str) -> None:
    shown = StringIO()
    with redirect_stdout(shown):
        show(health_result(health()), Output.JSON if form == "json" else Output.TABLE)
    check_golden(f"cluster-status.{form}", shown.getvalue())


def test_broker_that_refuses_is_not_one_without_a_response() -> None:
    shown = StringIO()
    with redirect_stdout(shown):
        show(health_result(health()), Output.TABLE)
    _, two, three = shown.getvalue().splitlines()[-3:]
    assert "no response" in two
    assert "not authorized" in three


def test_ipv6_address_has_brackets() -> None:
    brokers = broker_health([BrokerDescription(1, "::1", 9092)], [], {}, {})
    shown = health_result(ClusterHealth("id", 1, brokers, 0, 0, [], [])).object()
    assert "'[::1]:9092'" in str(shown)
