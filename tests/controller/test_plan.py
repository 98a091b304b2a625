"""The controller's decisions: changes of partitions after events and requests."""

from collections.abc import Iterable, Sequence

from ottla.cluster.image import ClusterImage, PartitionChange, PartitionState, Topic
from ottla.controller.plan import (
    AlteredPartition,
    Conditions,
    alter_partition,
    alter_partition_response,
    brokers_changed,
    brokers_to_spare,
    new_partitions,
    with_changes,
)
from ottla.errors import ErrorCode
from ottla.ids import NO_BROKER, BrokerEpoch, BrokerId, LeaderEpoch, TopicPartition, Uuid
from ottla.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)

TOPIC_ID = Uuid(bytes(15) + b"\x01")


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))


def state(
    *replicas: int,
    leader: int | None = None,
    isr: Sequence[int] | None = None,
    elr: Sequence[int] = (),
    last: Sequence[int] = (),
) -> PartitionState:
    """Return a stored state; by default all replicas are in sync and the first leads."""
    return PartitionState(
        ids(*replicas),
        BrokerId(replicas[0] if leader is None else leader),
        LeaderEpoch(5),
        ids(*(replicas if isr is None else isr)),
        7,
        ids(*elr),
        ids(*last),
    )


def image_of(*partitions: PartitionState) -> ClusterImage:
    return ClusterImage("c").with_topics([Topic("t", TOPIC_ID, partitions)])


def conditions(
    *alive: int,
    min_isr: int = 1,
    unclean: bool = False,
    shutting_down: Sequence[int] = (),
    answering: Sequence[int] = (),
    offline: Iterable[tuple[int, int]] = (),
) -> Conditions:
    """Return conditions; `offline` has pairs of a broker and a partition index."""
    return Conditions(
        ids(*alive),
        lambda topic: min_isr,
        lambda topic: unclean,
        ids(*shutting_down),
        ids(*answering),
        {BrokerId(broker): [TopicPartition("t", index)] for broker, index in offline},
    )


def brief(changes: Iterable[PartitionChange]) -> list[tuple[int, int, tuple[int, ...]]]:
    return [(one.index, one.after.leader, one.after.in_sync) for one in changes]


# New partitions.


def test_new_partitions_are_led_by_their_first_live_replica() -> None:
    image = image_of(
        PartitionState(ids(1, 2)),
        PartitionState(ids(2, 1)),
        PartitionState(
            ids(
                3,
            )
        ),
        state(1),
    )
    changes = new_partitions(image, conditions(1, 2))
    assert brief(changes) == [(0, 1, (1, 2)), (1, 2, (2, 1))]
    assert [(one.after.leader_epoch, one.after.version) for one in changes] == [(0, 0), (0, 0)]
    assert new_partitions(image, conditions(1, 2), ["t"]) == changes
    assert new_partitions(with_changes(image, changes), conditions(1, 2)) == []


def test_new_partition_is_not_led_by_a_broker_that_shuts_down() -> None:
    image = image_of(PartitionState(ids(1, 2)))
    assert brief(new_partitions(image, conditions(1, 2, shutting_down=[1]))) == [(0, 2, (2,))]


def test_new_partition_waits_for_a_live_replica() -> None:
    image = image_of(PartitionState(ids(1, 2)))
    assert new_partitions(image, conditions(3)) == []
    assert brief(brokers_changed(image, conditions(2, 3))) == [(0, 2, (2,))]


# Brokers that die and return.


def test_dead_broker_leaves_isrs_and_leaderships() -> None:
    image = image_of(state(1, 2, 3), state(2, 3, 1), state(2, 3), state(1))
    changes = brokers_changed(image, conditions(2, 3))
    assert brief(changes) == [(0, 2, (2, 3)), (1, 2, (2, 3)), (3, NO_BROKER, ())]
    after = with_changes(image, changes)
    assert after.version > image.version
    assert brokers_changed(after, conditions(2, 3)) == []
    back = brokers_changed(after, conditions(1, 2, 3), restarted=ids(1))
    assert brief(back) == [(3, 1, (1,))]


def test_a14_unclean_restart_is_noticed_inside_the_session() -> None:
    """The broker registered again before the controller saw that it was gone."""
    image = image_of(state(1, 2, 3), state(2, 1, 3), state(3, 2, isr=[3], elr=[2]))
    changes = brokers_changed(image, conditions(1, 2, 3, min_isr=2), lost=ids(1))
    assert brief(changes) == [(0, 2, (2, 3)), (1, 2, (2, 3))]
    changes = brokers_changed(image, conditions(1, 2, 3, min_isr=2), lost=ids(2))
    assert brief(changes) == [(0, 1, (1, 3)), (1, 1, (1, 3)), (2, 3, (3,))]
    assert changes[-1].after.elr == ()


def test_clean_restart_gets_new_epochs_and_keeps_the_isr() -> None:
    image = image_of(state(1, 2), state(2, 1))
    changes = brokers_changed(image, conditions(1, 2), restarted=ids(1))
    assert brief(changes) == [(0, 1, (1, 2))]
    assert changes[0].after.leader_epoch == 6


def test_a13_unclean_election_follows_when_the_topic_allows_it() -> None:
    image = image_of(state(1, 2, isr=[1]))
    offline = with_changes(image, brokers_changed(image, conditions(2)))
    assert offline.topics["t"].partitions[0].leader == NO_BROKER
    assert brief(brokers_changed(offline, conditions(2, unclean=True))) == [(0, 2, (2,))]


def test_b10_brokers_that_answer_are_not_dead_after_an_outage() -> None:
    """The first broker back must not shrink every ISR to itself."""
    image = image_of(state(1, 2, 3), state(2, 3, 1), state(3, 1, 2))
    for since, spared in ((0.0, {2, 3}), (17.9, {2, 3}), (18.0, set[int]()), (60.0, set[int]())):
        answering = brokers_to_spare(ids(2, 3), controller_for_s=since, session_timeout_s=18.0)
        assert answering == spared
        changes = brokers_changed(image, conditions(1, answering=sorted(answering)))
        expected = [] if spared else [(0, 1, (1,)), (1, 1, (1,)), (2, 1, (1,))]
        assert brief(changes) == expected
    # A broker that does not answer is dead.
    changes = brokers_changed(image, conditions(1, answering=[2]))
    assert brief(changes) == [(0, 1, (1, 2)), (1, 2, (2, 1)), (2, 1, (1, 2))]


def test_b10_broker_that_is_not_registered_is_not_elected() -> None:
    image = image_of(state(3, 2, 1))
    assert brief(brokers_changed(image, conditions(1, answering=[2]))) == [(0, 1, (2, 1))]


def test_broker_that_shuts_down_keeps_what_it_leads() -> None:
    image = image_of(state(1, 2), state(2, 1))
    assert brokers_changed(image, conditions(1, 2, shutting_down=[1])) == []
    assert brief(brokers_changed(image, conditions(1, shutting_down=[1]))) == [
        (0, 1, (1,)),
        (1, NO_BROKER, (1,)),
    ]


def test_replica_in_a_failed_directory_is_not_elected() -> None:
    image = image_of(state(1, 2, leader=NO_BROKER, isr=[], elr=[1], last=[1]), state(1, 2))
    failed = conditions(1, 2, offline=[(1, 0)])
    assert brokers_changed(image, failed) == []
    assert brief(brokers_changed(image, conditions(1, 2))) == [(0, 1, (1,))]


# AlterPartition.


def proposal(
    *isr: int | tuple[int, int],
    broker: int = 1,
    broker_epoch: int = 10,
    leader_epoch: int = 5,
    partition_epoch: int = 7,
    topic_id: Uuid = TOPIC_ID,
    index: int = 0,
) -> AlterPartitionRequest:
    """Return a request; members have the broker epoch 10 times their id, or a given one."""
    members = [
        BrokerState(broker_id=one, broker_epoch=10 * one)
        if isinstance(one, int)
        else BrokerState(broker_id=one[0], broker_epoch=one[1])
        for one in isr
    ]
    asked = PartitionData(
        partition_index=index,
        leader_epoch=leader_epoch,
        new_isr_with_epochs=members,
        partition_epoch=partition_epoch,
    )
    return AlterPartitionRequest(
        broker_id=broker,
        broker_epoch=broker_epoch,
        topics=[TopicData(topic_id=topic_id, partitions=[asked])],
    )


EPOCHS = {BrokerId(number): BrokerEpoch(10 * number) for number in (1, 2, 3)}


def outcome(
    image: ClusterImage, request: AlterPartitionRequest, given: Conditions
) -> AlteredPartition:
    outcomes = alter_partition(image, request, given, EPOCHS)
    assert not isinstance(outcomes, ErrorCode)
    return outcomes[0]


def test_leader_shrinks_and_expands_its_isr() -> None:
    given = conditions(1, 2, 3, min_isr=2)
    image = image_of(state(1, 2, 3))
    small = outcome(image, proposal(1), given)
    assert small.error is ErrorCode.NONE
    assert small.change is not None
    assert (small.state, small.change.before) == (small.change.after, image.state("t", 0))
    after = small.change.after
    assert (after.leader, after.leader_epoch, after.version) == (1, 5, 8)
    assert (after.in_sync, after.elr) == ((1,), (2, 3))
    image = with_changes(image, [small.change])
    grown = outcome(image, proposal(1, 3, partition_epoch=8), given)
    assert grown.state is not None
    assert (grown.state.in_sync, grown.state.elr, grown.state.version) == ((1, 3), (), 9)


def test_a10_only_the_registered_incarnation_joins_the_isr() -> None:
    image = image_of(state(1, 2, 3, isr=[1]))
    for member in ((2, 19), (2, 21), (2, -1)):
        assert outcome(image, proposal(1, member), conditions(1, 2, 3)).error is (
            ErrorCode.INELIGIBLE_REPLICA
        )
    assert outcome(image, proposal(1, (2, 20)), conditions(1, 2, 3)).error is ErrorCode.NONE
    down = conditions(1, 2, 3, shutting_down=[2])
    assert outcome(image, proposal(1, 2), down).error is ErrorCode.INELIGIBLE_REPLICA
    failed = conditions(1, 2, 3, offline=[(2, 0)])
    assert outcome(image, proposal(1, 2), failed).error is ErrorCode.INELIGIBLE_REPLICA
    unknown = alter_partition(
        image, proposal(1, 2), conditions(1, 2), {BrokerId(1): BrokerEpoch(10)}
    )
    assert not isinstance(unknown, ErrorCode)
    assert unknown[0].error is ErrorCode.INELIGIBLE_REPLICA


def test_leader_that_shuts_down_can_add_its_successor() -> None:
    image = image_of(state(1, 2, isr=[1]))
    given = conditions(1, 2, shutting_down=[1])
    assert outcome(image, proposal(1, 2), given).error is ErrorCode.NONE


def test_stale_proposals_are_refused() -> None:
    image = image_of(state(1, 2, 3))
    given = conditions(1, 2, 3)
    cases = {
        ErrorCode.UNKNOWN_TOPIC_ID: [proposal(1, topic_id=Uuid(bytes(16)))],
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: [proposal(1, index=1)],
        ErrorCode.NOT_CONTROLLER: [proposal(1, leader_epoch=6), proposal(1, partition_epoch=8)],
        ErrorCode.FENCED_LEADER_EPOCH: [proposal(1, leader_epoch=4)],
        ErrorCode.INVALID_REQUEST: [
            proposal(2, broker=2, broker_epoch=20), proposal(2), proposal(), proposal(1, 4),
        ],
        ErrorCode.INVALID_UPDATE_VERSION: [proposal(1, partition_epoch=6)],
    }  # fmt: skip
    found = {
        code: [outcome(image, request, given) for request in requests]
        for code, requests in cases.items()
    }
    wrong = [
        (code, one) for code, outcomes in found.items() for one in outcomes if one.error is not code
    ]
    assert not wrong
    assert all(one.change is one.state is None for some in found.values() for one in some)


def test_b4_proposal_of_another_incarnation_is_refused() -> None:
    image = image_of(state(1, 2, 3))
    for request in (proposal(1, broker_epoch=9), proposal(1, broker=4, broker_epoch=40)):
        error = alter_partition(image, request, conditions(1, 2, 3), EPOCHS)
        assert error is ErrorCode.STALE_BROKER_EPOCH
        response = alter_partition_response(error)
        assert (response.error_code, response.topics) == (77, ())


def test_b5_repeated_proposal_succeeds_without_a_change() -> None:
    """The response was lost: the leader sends the proposal again with the old partition epoch."""
    image = image_of(state(1, 2, 3))
    first = outcome(image, proposal(1, 2), conditions(1, 2, 3))
    assert first.change is not None
    image = with_changes(image, [first.change])
    again = outcome(image, proposal(2, 1), conditions(1, 2, 3))
    assert (again.error, again.change) == (ErrorCode.NONE, None)
    assert again.state == first.state
    response = alter_partition_response([again])
    (partition,) = response.topics[0].partitions
    assert (partition.error_code, partition.isr, partition.partition_epoch) == (0, (1, 2), 8)


def test_b5_leader_and_controller_drop_different_replicas() -> None:
    """Whoever is second must see the first change before it decides again."""
    image, given = image_of(state(1, 2, 3)), conditions(1, 2)
    (of_controller,) = brokers_changed(image, given)  # broker 3 is dead
    of_leader = outcome(image, proposal(1, 3), given).change  # broker 2 is slow
    assert of_leader is not None
    assert of_leader.before.version == of_controller.before.version  # one of them fails

    first = with_changes(image, [of_controller])
    assert outcome(first, proposal(1, 3), given).error is ErrorCode.FENCED_LEADER_EPOCH
    after = outcome(first, proposal(1, leader_epoch=6, partition_epoch=8), given).state
    assert after is not None
    assert after.in_sync == (1,)

    second = with_changes(image, [of_leader])
    (again,) = brokers_changed(second, given)
    assert (again.before.version, again.after.in_sync) == (8, (1,))


def test_alter_partition_response_groups_partitions_by_topic() -> None:
    outcomes = [
        AlteredPartition(TOPIC_ID, 0, ErrorCode.NONE, state(1, 2)),
        AlteredPartition(Uuid(bytes(16)), 0, ErrorCode.UNKNOWN_TOPIC_ID),
        AlteredPartition(TOPIC_ID, 1, ErrorCode.FENCED_LEADER_EPOCH),
    ]
    response = alter_partition_response(outcomes)
    assert [
        (topic.topic_id, [(one.partition_index, one.error_code) for one in topic.partitions])
        for topic in response.topics
    ] == [(TOPIC_ID, [(0, 0), (1, 74)]), (Uuid(bytes(16)), [(0, 100)])]
    assert type(response).decode(response.encode(3), 3).topics[0].partitions[0].isr == (1, 2)
