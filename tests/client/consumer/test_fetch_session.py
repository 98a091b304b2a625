"""Fetch sessions: the client sends changes only, and agrees with the broker."""

from ottla.client.consumer.fetch_session import FetchPosition, FetchSession
from ottla.ids import ZERO_UUID, PartitionIndex, TopicPartition, Uuid

ID = Uuid(b"1" * 16)
OTHER = Uuid(b"2" * 16)


def place(topic: str, partition: int) -> TopicPartition:
    return TopicPartition(topic, PartitionIndex(partition))


def wish(offset: int, topic_id: Uuid = ID) -> FetchPosition:
    return FetchPosition(topic_id, offset, 3, 1000)


A0, A1, B0 = place("a", 0), place("a", 1), place("b", 0)


def told(
    session: FetchSession, wanted: dict[TopicPartition, FetchPosition], version: int = 13
) -> object:
    asked = session.ask(wanted, version)
    return (
        (asked.session_id, asked.epoch),
        [(topic.topic, one.partition, one.fetch_offset) for topic in asked.topics
         for one in topic.partitions],
        [(topic.topic, index) for topic in asked.forgotten for index in topic.partitions],
    )  # fmt: skip


def test_only_what_changes_is_told_after_the_first_time() -> None:
    session = FetchSession()
    wanted = {A0: wish(0), A1: wish(5), B0: wish(7, OTHER)}
    assert told(session, wanted) == ((0, 0), [("a", 0, 0), ("a", 1, 5), ("b", 0, 7)], [])
    session.answered(99)
    assert told(session, wanted | {A0: wish(10)}) == ((99, 1), [("a", 0, 10)], [])
    session.answered(99)
    assert told(session, {A0: wish(10)}) == ((99, 2), [], [("a", 1), ("b", 0)])
    assert session.name("", ID) == "a"
    assert session.name("", OTHER) is None


def test_after_a_doubt_all_is_told() -> None:
    session = FetchSession()
    session.ask({A0: wish(0)}, 13)
    session.answered(99)
    session.ask({A0: wish(0)}, 13)
    session.begin_anew()
    assert told(session, {A0: wish(0)}) == ((0, 0), [("a", 0, 0)], [])


def test_a_broker_without_room_for_sessions_is_told_all_every_time() -> None:
    session = FetchSession()
    for _ in range(3):
        assert told(session, {A0: wish(0)}) == ((0, 0), [("a", 0, 0)], [])
        session.answered(0)
        assert not session.is_kept


def test_a_topic_made_anew_is_forgotten_and_told() -> None:
    session = FetchSession()
    session.ask({A0: wish(5)}, 13)
    session.answered(99)
    asked = session.ask({A0: wish(0, OTHER)}, 13)
    assert [topic.topic_id for topic in asked.topics] == [OTHER]
    assert [topic.topic_id for topic in asked.forgotten] == [ID]


def test_names_are_used_as_long_as_an_id_is_missing() -> None:
    session = FetchSession()
    assert not session.ask({A0: wish(0, ZERO_UUID), B0: wish(0)}, 13).by_id
    assert session.name("a", ZERO_UUID) == "a"
    session.answered(99)
    assert not session.ask({B0: wish(0)}, 12).by_id
    session.answered(99)
    asked = session.ask({B0: wish(0)}, 13)
    assert asked.by_id
    assert (asked.session_id, asked.epoch, len(asked.topics)) == (0, 0, 1)


def test_epochs_begin_at_one_again_after_the_last() -> None:
    session = FetchSession()
    session.ask({}, 13)
    session.answered(99)
    session._epoch = 0x7FFF_FFFF  # pyright: ignore[reportPrivateUsage]
    session.ask({}, 13)
    session.answered(99)
    assert session.ask({}, 13).epoch == 1
    assert session.ending()[:2] == (99, -1)
