"""The client's view of the cluster: leaders by their newest epoch, topics by their ids."""

from ottla.client.network.cluster_view import NOTHING_KNOWN, BrokerView, ClusterView
from ottla.errors import ErrorCode
from ottla.ids import NO_BROKER, BrokerId, Uuid
from ottla.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

A, B = Uuid(b"a" * 16), Uuid(b"b" * 16)


def partition(leader: int, epoch: int, index: int = 0, error: int = 0) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        error_code=error,
        partition_index=index,
        leader_id=leader,
        leader_epoch=epoch,
        replica_nodes=[1, 2],
        isr_nodes=[1, 2],
    )


def topic(
    *partitions: MetadataResponsePartition,
    name: str | None = "t",
    topic_id: Uuid = A,
    error: int = 0,
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=error, name=name, topic_id=topic_id, partitions=partitions
    )


def answer(*topics: MetadataResponseTopic, brokers: tuple[int, ...] = (1, 2)) -> MetadataResponse:
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=id_, host=f"h{id_}", port=9092) for id_ in brokers],
        cluster_id="c",
        controller_id=1,
        topics=topics,
    )


def leader_of(view: ClusterView, name: str = "t", index: int = 0) -> tuple[int, int] | None:
    one = view.leader(name, index)
    return None if one is None else (one.leader, one.leader_epoch)


def test_view_contains_the_metadata_response() -> None:
    view = NOTHING_KNOWN.told(answer(topic(partition(1, 3))))
    assert (view.cluster_id, view.controller) == ("c", 1)
    assert view.brokers[BrokerId(2)] == BrokerView(BrokerId(2), "h2", 9092)
    assert leader_of(view) == (1, 3)
    assert view.names == {A: "t"}
    assert view.topics["t"].partitions[0].replicas == (1, 2)


def test_older_epoch_does_not_restore_a_deposed_leader() -> None:
    view = NOTHING_KNOWN.told(answer(topic(partition(2, 5))))
    assert leader_of(view.told(answer(topic(partition(1, 4))))) == (2, 5)
    assert leader_of(view.told(answer(topic(partition(1, 5))))) == (1, 5)
    assert leader_of(view.told(answer(topic(partition(1, 6))))) == (1, 6)


def test_recreated_topic_has_its_own_epochs() -> None:
    view = NOTHING_KNOWN.told(answer(topic(partition(2, 5))))
    recreated = view.told(answer(topic(partition(1, 0), topic_id=B)))
    assert leader_of(recreated) == (1, 0)
    assert recreated.names == {B: "t"}


def test_metadata_without_epochs_is_accepted() -> None:
    view = NOTHING_KNOWN.told(answer(topic(partition(2, 5))))
    assert leader_of(view.told(answer(topic(partition(1, -1))))) == (1, -1)


def test_leader_that_is_not_a_known_broker_is_none() -> None:
    view = NOTHING_KNOWN.told(answer(topic(partition(3, 1), partition(NO_BROKER, 1, index=1))))
    assert leader_of(view) is None
    assert leader_of(view, index=1) is None
    assert leader_of(view, index=2) is None
    assert leader_of(view, "other") is None


def test_retriable_topic_error_keeps_known_leaders() -> None:
    view = NOTHING_KNOWN.told(answer(topic(partition(1, 3))))
    unsure = view.told(answer(topic(error=ErrorCode.LEADER_NOT_AVAILABLE)))
    assert leader_of(unsure) == (1, 3)
    assert unsure.topics["t"].error is ErrorCode.LEADER_NOT_AVAILABLE
    gone = view.told(answer(topic(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)))
    assert leader_of(gone) is None


def test_other_topics_stay_unless_all_were_requested() -> None:
    view = NOTHING_KNOWN.told(answer(topic(partition(1, 3))))
    other = answer(topic(partition(2, 0), name="u", topic_id=B))
    assert {*view.told(other).topics} == {"t", "u"}
    assert {*view.told(other, all_topics=True).topics} == {"u"}
    assert {*view.told(other).without(["t"]).topics} == {"u"}
    assert view.told(other).without(["t"]).names == {B: "u"}


def test_topic_requested_by_id_is_known_by_name() -> None:
    view = NOTHING_KNOWN.told(answer(topic(partition(1, 3))))
    assert leader_of(view.told(answer(topic(partition(2, 4), name=None)))) == (2, 4)
    assert not NOTHING_KNOWN.told(answer(topic(partition(2, 4), name=None))).topics


def test_leader_hint_counts_if_its_epoch_is_newer() -> None:
    view = NOTHING_KNOWN.told(answer(topic(partition(1, 3)), brokers=(1,)))
    two = BrokerView(BrokerId(2), "new", 9093)
    assert leader_of(view.led_by("t", 0, 2, 4, [two])) == (2, 4)
    assert view.led_by("t", 0, 2, 4, [two]).brokers[BrokerId(2)] is two
    assert view.led_by("t", 0, 2, 3, [two]) is view
    assert view.led_by("t", 7, 2, 4, [two]) is view
    assert view.led_by("u", 0, 2, 4, [two]) is view
