"""The controller's decisions: changes of partitions after events and requests."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from ottla.cluster.image import ClusterImage, PartitionChange, PartitionState, Topic
from ottla.cluster.reassignment import StepKind
from ottla.controller.plan import (
    AlteredPartition,
    Conditions,
    ElectionType,
    ReassignmentOutcome,
    alter_partition,
    alter_partition_response,
    alter_reassignment,
    brokers_changed,
    brokers_to_spare,
    controlled_shutdown,
    directory_failed,
    directory_full,
    elect_leaders,
    min_isr_changed,
    new_partitions,
    preferred_imbalance,
    reassignment_steps,
    with_changes,
)
from ottla.errors import ErrorCode
from ottla.ids import (
    NO_BROKER,
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    PartitionIndex,
    TopicPartition,
    Uuid,
)
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


def test_deleted_topic_has_no_new_partitions() -> None:
    image = image_of(PartitionState(ids(1, 2)))
    changes = new_partitions(image, conditions(1, 2), ["t", "deleted meanwhile"])
    assert brief(changes) == [(0, 1, (1, 2))]


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


def test_b5_delayed_proposal_does_not_undo_a_later_one() -> None:
    """Both proposals are of one leader epoch; the partition epoch tells them apart."""
    image = image_of(state(1, 2, 3))
    later = outcome(image, proposal(1), conditions(1, 2, 3)).change
    assert later is not None
    image = with_changes(image, [later])
    delayed = outcome(image, proposal(1, 2), conditions(1, 2, 3))
    assert (delayed.error, delayed.change) == (ErrorCode.INVALID_UPDATE_VERSION, None)


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


# Shutdowns and disks.


def test_b11_shutdown_moves_leaders_and_leaves_isrs() -> None:
    image = image_of(state(1, 2), state(2, 1), state(2, 3), state(1, 2, isr=[1]), state(1))
    plan = controlled_shutdown(image, conditions(1, 2, 3, shutting_down=[1]), BrokerId(1))
    assert brief(plan.changes) == [(0, 2, (2,)), (1, 2, (2,))]
    assert all(one.after.leader_epoch == 6 for one in plan.changes)
    # Partition 3 has no other member in sync; partition 4 has no other replica to wait for.
    assert plan.remaining == [TopicPartition("t", 3)]


def test_b11_leaders_do_not_move_to_a_broker_that_shuts_down() -> None:
    image = image_of(state(1, 2, 3), state(1, 2))
    plan = controlled_shutdown(image, conditions(1, 2, 3, shutting_down=[1, 2]), BrokerId(1))
    assert brief(plan.changes) == [(0, 3, (2, 3))]
    assert plan.remaining == [TopicPartition("t", 1)]


def test_b11_broker_that_shut_down_is_eligible() -> None:
    """A clean stop loses nothing, so the broker may lead if the others die."""
    image = image_of(state(1, 2))
    plan = controlled_shutdown(image, conditions(1, 2, min_isr=2), BrokerId(1))
    assert [(one.after.in_sync, one.after.elr) for one in plan.changes] == [((2,), (1,))]
    after = with_changes(image, plan.changes)
    assert brief(brokers_changed(after, conditions(1, min_isr=2))) == [(0, 1, (1,))]


def partitions(*indexes: int) -> list[TopicPartition]:
    return [TopicPartition("t", index) for index in indexes]


def test_c6_full_leader_hands_over_to_an_isr_member() -> None:
    image = image_of(state(1, 2), state(1, 2, isr=[1]), state(2, 1), state(1, 2))
    changes = directory_full(image, conditions(1, 2), BrokerId(1), partitions(0, 1, 2, 9))
    # Without another member in sync it continues to serve reads; a follower leaves the ISR.
    assert brief(changes) == [(0, 2, (2,)), (2, 2, (2,))]


def test_c6_full_replica_stays_if_no_other_isr_member_is_alive() -> None:
    image = image_of(state(1, 2), state(1, 2, leader=NO_BROKER, isr=[1]))
    assert directory_full(image, conditions(1), BrokerId(1), partitions(0, 1)) == []


def test_c6_failed_directory_gives_up_its_partitions() -> None:
    image = image_of(state(1, 2), state(1, 2, isr=[1]), state(2, 1), state(1, 2))
    given = conditions(1, 2)
    changes = directory_failed(image, given, BrokerId(1), partitions(0, 1, 2, 9))
    assert brief(changes) == [(0, 2, (2,)), (1, NO_BROKER, ()), (2, 2, (2,))]
    assert changes[1].after.elr == (1,)
    # A new controller finds the same in the conditions.
    failed = Conditions(given.alive, given.min_isr, offline={BrokerId(1): partitions(0, 1, 2)})
    assert brokers_changed(image, failed) == changes
    assert brokers_changed(with_changes(image, changes), failed) == []


def test_a14_lower_minimum_clears_the_elr() -> None:
    image = image_of(
        state(1, 2, 3, isr=[1], elr=[2, 3]), state(1, leader=NO_BROKER, isr=[], elr=[1])
    )
    assert min_isr_changed(image, conditions(1, min_isr=2), ["t"]) == []
    (change,) = min_isr_changed(image, conditions(1, min_isr=1), ["t"])
    assert (change.index, change.after.in_sync, change.after.elr) == (0, (1,), ())


# Elections on request.


def elections(
    image: ClusterImage, given: Conditions, kind: ElectionType, *indexes: int
) -> list[tuple[int, ErrorCode, int | None]]:
    asked = partitions(*indexes) if indexes else None
    return [
        (one.index, one.error, None if one.change is None else one.change.after.leader)
        for one in elect_leaders(image, given, kind, asked)
    ]


def test_preferred_leaders_are_elected_on_request() -> None:
    image = image_of(
        state(1, 2), state(1, 2, leader=2), state(1, 2, leader=2, isr=[2]), state(3, 2, leader=2)
    )
    given = conditions(1, 2, 3, shutting_down=[3])
    expected = [
        (1, ErrorCode.NONE, 1),
        (2, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, None),
        (3, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, None),
    ]
    assert elections(image, given, ElectionType.PREFERRED) == expected
    first = (0, ErrorCode.ELECTION_NOT_NEEDED, None)
    unknown = (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
    assert elections(image, given, ElectionType.PREFERRED, 0, 1, 2, 3, 9) == [
        first,
        *expected,
        unknown,
    ]
    (outcome,) = elect_leaders(
        image, given, ElectionType.PREFERRED, [TopicPartition("u", PartitionIndex(0))]
    )
    assert (outcome.error, outcome.message) == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "No such topic as u",
    )


def test_a13_administrator_can_elect_an_unclean_leader() -> None:
    offline = state(1, 2, leader=NO_BROKER, isr=[], elr=[1], last=[1])
    image = image_of(offline, state(2), state(3, leader=NO_BROKER, isr=[], elr=[3], last=[3]))
    given = conditions(2)
    assert brokers_changed(image, given) == []
    assert elections(image, given, ElectionType.UNCLEAN, 0, 1, 2) == [
        (0, ErrorCode.NONE, 2),
        (1, ErrorCode.ELECTION_NOT_NEEDED, None),
        (2, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, None),
    ]


def test_leaderships_return_to_preferred_leaders() -> None:
    moved = [state(1, 2, leader=2) for _ in range(2)]
    image = image_of(*moved, *(state(1, 2) for _ in range(8)), state(2, 1))
    assert preferred_imbalance(image, conditions(1, 2), percentage=20) == []
    changes = preferred_imbalance(image, conditions(1, 2), percentage=19)
    assert brief(changes) == [(0, 1, (1, 2)), (1, 1, (1, 2))]
    assert preferred_imbalance(image, conditions(2), percentage=0) == []
    assert preferred_imbalance(image, conditions(1, 2, shutting_down=[1]), percentage=0) == []
    moving = replace(moved[0], removing=ids(2))
    assert preferred_imbalance(image_of(moving), conditions(1, 2), percentage=0) == []


# Reassignments.


def reassign(image: ClusterImage, target: Sequence[int] | None) -> ReassignmentOutcome:
    return alter_reassignment(image, conditions(1, 2, 3), partitions(0)[0], target)


def test_reassignment_is_begun_and_cancelled_on_request() -> None:
    image = image_of(state(1, 2))
    begun = reassign(image, [3, 2])
    assert begun.change is not None
    assert (begun.change.after.replicas, begun.delete) == ((3, 2, 1), ())
    image = with_changes(image, [begun.change])
    again = reassign(image, [3, 2])
    assert (again.error, again.change) == (ErrorCode.NONE, None)
    cancelled = reassign(image, None)
    assert cancelled.change is not None
    assert (cancelled.change.after.replicas, cancelled.delete) == ((2, 1), (3,))


def test_invalid_reassignments_are_refused() -> None:
    image = image_of(state(1, 2), state(4, 1, leader=1, isr=[1]))
    assert reassign(image, None).error is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    for target in ([], [1, 1], [1, 9], [-1]):
        refused = reassign(image, target)
        assert (refused.error, refused.change) == (ErrorCode.INVALID_REPLICA_ASSIGNMENT, None)
        assert refused.message
    unknown = alter_reassignment(image, conditions(1), partitions(7)[0], [1])
    assert unknown.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    factor = alter_reassignment(
        image, conditions(1, 2, 3), partitions(0)[0], [3], can_change_factor=False
    )
    assert factor.error is ErrorCode.INVALID_REPLICATION_FACTOR
    dead = alter_reassignment(image, conditions(1, 2, 3), partitions(1)[0], [4, 2])
    assert dead.error is ErrorCode.NONE  # broker 4 is dead, and has been a replica before


def test_a15_controller_takes_the_next_step_of_every_reassignment() -> None:
    given = conditions(1, 2, 3, min_isr=2)
    image = image_of(
        state(1, 2),
        replace(state(3, 2, 1, leader=1), adding=ids(3), removing=ids(1)),
        replace(state(3, 2, 1, leader=3), adding=ids(3), removing=ids(1)),
        replace(state(3, 2, 1, leader=3, isr=[3, 2]), adding=ids(3), removing=ids(1)),
        replace(state(3, 2, 1, leader=1, isr=[2, 1]), adding=ids(3), removing=ids(1)),
    )
    steps = reassignment_steps(image, given, partitions(*range(5)))
    assert [(one.change.index, one.kind, one.delete) for one in steps] == [
        (1, StepKind.MOVE_LEADER, ()),
        (2, StepKind.SHRINK_ISR, ()),
        (3, StepKind.FINISH, (1,)),
    ]
    image = with_changes(image, [one.change for one in steps])
    steps = reassignment_steps(image, given, partitions(*range(5)))
    assert [(one.change.index, one.kind) for one in steps] == [
        (1, StepKind.SHRINK_ISR),
        (2, StepKind.FINISH),
    ]
    # The replica that leaves must not return while its log is deleted.
    request = proposal(3, 2, 1, broker=3, broker_epoch=30, index=2, leader_epoch=6)
    request.topics[0].partitions[0].partition_epoch = 8
    assert outcome(image, request, given).error is ErrorCode.INELIGIBLE_REPLICA
