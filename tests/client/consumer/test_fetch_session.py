"""Fetch sessions: the client sends changes only, and agrees with the broker."""

from ottla.client.consumer.fetch_session import FetchPosition, FetchSession
from ottla.ids import ZERO_UUID, PartitionIndex, TopicPartition, Uuid

ID = Uuid(b"1" * 16)
OTHER = Uuid(b"2" * 16)


def place(topic: str, partition: int) -> TopicPartition:
    return TopicPartition(topic, PartitionIndex(partition))


def fetch_position(offset: int, topic_id: Uuid = ID) -> FetchPosition:
    return FetchPosition(topic_id, offset, 3, 1000)


A0, A1, B0 = place("a", 0), place("a", 1), place("b", 0)


def request_contents(
    session: FetchSession, wanted: dict[TopicPartition, FetchPosition], version: int = 13
) -> object:
    asked = session.ask(wanted, version)
    return (
        (asked.session_id, asked.epoch),
        [(topic.topic, one.partition, one.fetch_offset) for topic in asked.topics
         for one in topic.partitions],
        [(topic.topic, index) for topic in asked.forgotten for index in topic.partitions],
    )  # fmt: skip


def test_later_requests_contain_only_changes() -> None:
    session = FetchSession()
    wanted = {A0: fetch_position(0), A1: fetch_position(5), B0: fetch_position(7, OTHER)}
    assert request_contents(session, wanted) == (
        (0, 0),
        [("a", 0, 0), ("a", 1, 5), ("b", 0, 7)],
        [],
    )
    session.answered(99)
    assert request_contents(session, wanted | {A0: fetch_position(10)}) == (
        (99, 1),
        [("a", 0, 10)],
        [],
    )
    session.answered(99)
    assert request_contents(session, {A0: fetch_position(10)}) == (
        (99, 2),
        [],
        [("a", 1), ("b", 0)],
    )
    assert session.name("", ID) == "a"
    assert session.name("", OTHER) is None


def test_lost_session_restarts_with_a_full_request() -> None:
    session = FetchSession()
    session.ask({A0: fetch_position(0)}, 13)
    session.answered(99)
    session.ask({A0: fetch_position(0)}, 13)
    session.begin_anew()
    assert request_contents(session, {A0: fetch_position(0)}) == ((0, 0), [("a", 0, 0)], [])


def test_without_a_session_every_request_is_full() -> None:
    session = FetchSession()
    for _ in range(3):
        assert request_contents(session, {A0: fetch_position(0)}) == ((0, 0), [("a", 0, 0)], [])
        session.answered(0)
        assert not session.is_kept


def test_recreated_topic_is_forgotten_and_added_again() -> None:
    session = FetchSession()
    session.ask({A0: fetch_position(5)}, 13)
    session.answered(99)
    asked = session.ask({A0: fetch_position(0, OTHER)}, 13)
    assert [topic.topic_id for topic in asked.topics] == [OTHER]
    assert [topic.topic_id for topic in asked.forgotten] == [ID]


def test_topic_names_are_used_while_an_id_is_missing() -> None:
    session = FetchSession()
    assert not session.ask({A0: fetch_position(0, ZERO_UUID), B0: fetch_position(0)}, 13).by_id
    assert session.name("a", ZERO_UUID) == "a"
    session.answered(99)
    assert not session.ask({B0: fetch_position(0)}, 12).by_id
    session.answered(99)
    asked = session.ask({B0: fetch_position(0)}, 13)
    assert asked.by_id
    assert (asked.session_id, asked.epoch, len(asked.topics)) == (0, 0, 1)


def test_epoch_wraps_around_to_1() -> None:
    session = FetchSession()
    session.ask({}, 13)
    session.answered(99)
    session._epoch = 0x7FFF_FFFF  # pyright: ignore[reportPrivateUsage]
    session.ask({}, 13)
    session.answered(99)
    assert session.ask({}, 13).epoch == 1
    assert session.ending()[:2] == (99, -1)
