"""A model of a group whose members come and go, and of a coordinator that crashes.

After every step: no request is lost, no timer leaks, generations only increase, no member has an
assignment that is not in the log, and offsets equal those in the log.
"""

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from groups.harness import GROUP, RANGE, ROUND_ROBIN, Entry, Harness, partition
from ottla.errors import ErrorCode
from ottla.groups.config import GroupConfig
from ottla.groups.coordinator import Coordinator
from ottla.groups.effects import OffsetsDeleted, OffsetsStored, StaticMemberStored
from ottla.groups.events import DeleteOffsets, Leaver, PartitionsDeleted, TransactionEnded
from ottla.groups.ledger import Ledger
from ottla.groups.responses import JoinResult, PartitionErrors, SyncResult
from ottla.groups.states import State
from ottla.groups.types import AssignmentStored, RequestToken, Timer, TimerKind
from ottla.ids import NO_PRODUCER_ID, LeaderEpoch, Offset, ProducerId, TopicPartition
from ottla.protocol.offsets_topic import (
    TYPES,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from sampling import examples

RULES = GroupConfig(
    members_max=4, offsets_retention_ms=120_000, offsets_retention_check_interval_ms=40_000
)
PARTITIONS = [partition("orders"), partition("bills"), partition("bills", 1)]
GROUPS = [GROUP, "simple"]
PROTOCOLS = [(RANGE,), (RANGE, ROUND_ROBIN), (ROUND_ROBIN, RANGE)]


@dataclass(eq=False)
class Client:
    """A consumer, as the protocol sees it."""

    instance_id: str | None
    member_id: str = ""
    generation: int = -1
    leads: bool = False
    others: tuple[str, ...] = ()  # the members it assigns to, as leader
    join: RequestToken | None = None
    sync: RequestToken | None = None

    def forget(self) -> None:
        self.member_id, self.generation, self.leads = "", -1, False


class GroupModel(RuleBasedStateMachine):
    """Clients, a log and a coordinator; a rule decides when appends succeed or fail."""

    def __init__(self) -> None:
        super().__init__()
        self.harness = Harness(RULES, auto=False)
        self.clients: list[Client] = []
        self.commits: dict[RequestToken, TopicPartition] = {}
        self.live: list[RequestToken] = []  # requests since the broker's last start
        self.generation = 0
        self.group_seen: object = None

    # Clients.

    def sent(self, token: RequestToken) -> RequestToken:
        self.live.append(token)
        return token

    def client(self, pick: int) -> Client:
        return self.clients[pick % len(self.clients)]

    @precondition(lambda self: len(self.clients) < 5)
    @rule(instance=st.sampled_from([None, None, "a", "b"]), protocols=st.sampled_from(PROTOCOLS))
    def arrive(self, instance: str | None, protocols: tuple[object, ...]) -> None:
        client = Client(instance)
        self.clients.append(client)
        self.send_join(client, protocols)

    def send_join(self, client: Client, protocols: tuple[object, ...]) -> None:
        client.sync = None
        client.join = self.sent(
            self.harness.join(
                client.member_id,
                instance_id=client.instance_id,
                protocols=protocols,  # pyright: ignore[reportArgumentType]
                rebalance_ms=20_000,
            )
        )
        self.hear()

    @precondition(lambda self: self.clients)
    @rule(pick=st.integers(0, 9), protocols=st.sampled_from(PROTOCOLS))
    def join_again(self, pick: int, protocols: tuple[object, ...]) -> None:
        self.send_join(self.client(pick), protocols)

    @precondition(lambda self: self.clients)
    @rule(pick=st.integers(0, 9))
    def sync(self, pick: int) -> None:
        client = self.client(pick)
        if client.generation >= 0:
            shares = {other: f"{client.generation}:{other}".encode() for other in client.others}
            client.sync = self.sent(
                self.harness.sync(
                    client.member_id,
                    client.generation,
                    shares if client.leads else None,
                    instance_id=client.instance_id,
                    protocol_name=None,
                )
            )
            self.hear()

    @initialize(
        instances=st.lists(st.sampled_from([None, None, "a", "b"]), max_size=3, unique=True)
    )
    def begin(self, instances: tuple[str | None, ...]) -> None:
        """Many histories start with a stable group."""
        for instance in instances:
            self.arrive(instance, PROTOCOLS[1])
        self.everybody_goes_on(stores=True)

    @rule(stores=st.booleans())
    def everybody_goes_on(self, stores: bool) -> None:
        """Let undisturbed clients join and sync until the group is stable."""
        for _ in range(4):
            for client in list(self.clients):
                if client.join is None and client.generation < 0:
                    self.send_join(client, PROTOCOLS[1])
            self.time_passes(3_000)
            for pick, client in enumerate(self.clients):
                self.heartbeat(pick)
                if client.sync is None and client.generation >= 0:
                    self.sync(pick)
            while stores and self.harness.appends:
                self.append_committed()

    @precondition(lambda self: self.clients)
    @rule(pick=st.integers(0, 9))
    def heartbeat(self, pick: int) -> None:
        client = self.client(pick)
        if client.generation >= 0:
            error = self.harness.heartbeat(client.member_id, client.generation, client.instance_id)
            self.react(client, error)
            self.hear()

    @precondition(lambda self: self.clients)
    @rule(pick=st.integers(0, 9), by_instance=st.booleans())
    def leave(self, pick: int, by_instance: bool) -> None:
        client = self.client(pick)
        if client.member_id:
            named = "" if by_instance and client.instance_id else client.member_id
            self.harness.leave(Leaver(named, client.instance_id))
            self.hear()
            self.clients.remove(client)

    @precondition(lambda self: self.clients)
    @rule(pick=st.integers(0, 9))
    def die(self, pick: int) -> None:
        self.clients.remove(self.client(pick))

    def hear(self) -> None:
        """Let clients process their responses."""
        for client in self.clients:
            if client.join is not None and not self.harness.waits(client.join):
                answer, client.join = self.harness.joined(client.join), None
                self.joined(client, answer)
            if client.sync is not None and not self.harness.waits(client.sync):
                answer, client.sync = self.harness.synced(client.sync), None
                self.synced(client, answer)
        for token in [token for token in self.commits if not self.harness.waits(token)]:
            del self.commits[token]

    def joined(self, client: Client, answer: JoinResult) -> None:
        if answer.error is ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = answer.member_id
        elif answer.error:
            self.react(client, answer.error)
        else:
            client.member_id, client.generation = answer.member_id, answer.generation
            client.leads = answer.leader == answer.member_id and not answer.skip_assignment
            client.others = tuple(member.member_id for member in answer.members)

    def synced(self, client: Client, answer: SyncResult) -> None:
        if answer.error:
            self.react(client, answer.error)
            return
        stored = self.group_in_log()
        assert stored is not None, "an assignment that the log does not have"
        assert stored.generation == client.generation
        (kept,) = [m for m in stored.members if m.member_id == client.member_id]
        assert answer.assignment == kept.assignment
        if answer.assignment:
            generation, _, member_id = answer.assignment.decode().partition(":")
            assert int(generation) == client.generation
            assert member_id == client.member_id or client.instance_id is not None

    def react(self, client: Client, error: ErrorCode) -> None:
        gone = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)
        if error in (*gone, ErrorCode.GROUP_MAX_SIZE_REACHED):
            client.forget()
        elif error:
            client.generation = -1

    # Offsets.

    @precondition(lambda self: self.clients)
    @rule(pick=st.integers(0, 9), at=st.sampled_from(PARTITIONS), offset=st.integers(0, 99))
    def commit_as_member(self, pick: int, at: TopicPartition, offset: int) -> None:
        client = self.client(pick)
        if client.generation < 0:
            return
        appends = len(self.harness.appends)
        token = self.sent(
            self.harness.send_commit(
                offset,
                at=at,
                member_id=client.member_id,
                generation=client.generation,
                instance_id=client.instance_id,
            )
        )
        self.commits[token] = at
        if len(self.harness.appends) > appends:
            group = self.harness.group
            assert client.member_id in group.roster
            assert client.generation == group.generation
            assert group.state in (State.STABLE, State.PREPARING_REBALANCE)

    @rule(
        group_id=st.sampled_from(GROUPS),
        at=st.sampled_from(PARTITIONS),
        offset=st.integers(0, 99),
        producer=st.sampled_from([None, 1, 2]),
    )
    def commit_alone(
        self, group_id: str, at: TopicPartition, offset: int, producer: int | None
    ) -> None:
        token = self.harness.send_commit(offset, at=at, group_id=group_id, producer_id=producer)
        self.commits[self.sent(token)] = at

    @rule(producer=st.sampled_from([1, 2]), committed=st.booleans())
    def end_transaction(self, producer: int, committed: bool) -> None:
        # The marker comes after the records of its transaction, so their appends are decided first.
        while self.harness.appends:
            self.append_committed()
        self.harness.log.append(Entry(None, ProducerId(producer), committed))
        self.harness.do(TransactionEnded(ProducerId(producer), committed))

    @rule(group_id=st.sampled_from(GROUPS))
    def delete_group(self, group_id: str) -> None:
        self.sent(self.harness.delete_groups(group_id))

    @rule(group_id=st.sampled_from(GROUPS), at=st.sampled_from(PARTITIONS))
    def delete_offset(self, group_id: str, at: TopicPartition) -> None:
        token = self.sent(self.harness.token())
        self.harness.do(DeleteOffsets(token, group_id, (at,)))

    @rule(at=st.sampled_from(PARTITIONS))
    def delete_partition(self, at: TopicPartition) -> None:
        self.harness.do(PartitionsDeleted(frozenset({at})))

    # Faults.

    @precondition(lambda self: self.harness.appends)
    @rule()
    def append_committed(self) -> None:
        self.harness.commit_append()
        self.hear()

    @precondition(lambda self: self.harness.appends)
    @rule(error=st.sampled_from([ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.MESSAGE_TOO_LARGE]))
    def append_fails(self, error: ErrorCode) -> None:
        self.harness.fail_append(error)
        self.hear()

    @rule(milliseconds=st.sampled_from([0, 1, 3_000, 6_000, 9_999, 21_000, 121_000]))
    def time_passes(self, milliseconds: int) -> None:
        self.harness.advance(milliseconds)
        self.hear()

    @rule(written=st.integers(0, 3))
    def broker_dies(self, written: int) -> None:
        """Some of the appends in flight reach the log; no client is notified."""
        for append in self.harness.appends[:written]:
            self.harness.write(append)
        self.restart()

    @rule()
    def leadership_moves(self) -> None:
        """The coordinator loads again without a crash; its clients are redirected and return."""
        self.harness.begin()
        self.hear()
        for append in self.harness.appends:
            self.drop(append.then)
        self.harness.appends.clear()
        self.generation, self.group_seen = 0, None

    def drop(self, then: object) -> None:
        if isinstance(then, OffsetsStored | OffsetsDeleted) and then.token is not None:
            self.live.remove(then.token)

    def restart(self) -> None:
        self.harness.crash()
        self.live.clear()
        self.commits.clear()
        for client in self.clients:
            client.join = client.sync = None
        self.generation, self.group_seen = 0, None
        stored = self.group_in_log()
        if stored is not None and GROUP in self.harness.coordinator.ledger.groups:
            assert self.harness.generation == stored.generation

    # Invariants.

    def group_in_log(self) -> GroupMetadataValue | None:
        """Return the last record of the group in the log."""
        for entry in reversed(self.harness.log):
            key = None if entry.record is None else TYPES.decode_key(entry.record.key)
            if isinstance(key, GroupMetadataKey) and key.group == GROUP:
                assert entry.record is not None
                if entry.record.value is None:
                    return None
                value = TYPES.decode_value(key, entry.record.value)
                assert isinstance(value, GroupMetadataValue)
                return value
        return None

    def offsets_in_log(self) -> dict[tuple[str, str, int], int]:
        """Return the committed offsets in the log, with the simplest reader."""
        committed: dict[tuple[str, str, int], tuple[int, int]] = {}
        pending: dict[ProducerId, dict[tuple[str, str, int], tuple[int, int]]] = {}
        for at, entry in enumerate(self.harness.log):
            if entry.record is None:
                for where, found in pending.pop(entry.producer_id, {}).items():
                    if entry.committed and committed.get(where, (-1, 0)) < found:
                        committed[where] = found
                continue
            key = TYPES.decode_key(entry.record.key)
            if not isinstance(key, OffsetCommitKey):
                continue
            where = (key.group, key.topic, key.partition)
            if entry.record.value is None:
                for known in (committed, *pending.values()):
                    known.pop(where, None)
                continue
            value = TYPES.decode_value(key, entry.record.value)
            assert isinstance(value, OffsetCommitValue)
            if entry.producer_id == NO_PRODUCER_ID:
                committed[where] = (at, value.offset)
            else:
                pending.setdefault(entry.producer_id, {})[where] = (at, value.offset)
        return {where: offset for where, (_, offset) in committed.items()}

    @staticmethod
    def offsets_known(ledger: Ledger) -> dict[tuple[str, str, int], int]:
        return {
            (group_id, at.topic, at.partition): committed.offset
            for group_id in GROUPS
            for at, committed in ledger.offsets.of(group_id).items()
        }

    @invariant()
    def offsets_are_those_of_the_log(self) -> None:
        expected = self.offsets_in_log()
        assert self.offsets_known(self.harness.coordinator.ledger) == expected

    @invariant()
    def generations_rise(self) -> None:
        group = self.harness.coordinator.ledger.groups.get(GROUP)
        if group is not self.group_seen:
            self.generation, self.group_seen = 0, group
        if group is not None:
            assert group.generation >= self.generation
            self.generation = group.generation

    @invariant()
    def no_request_is_forgotten(self) -> None:
        parked: list[RequestToken | None] = []
        for group in self.harness.coordinator.ledger.groups.values():
            for member in group.roster:
                parked += [member.join_token, member.sync_token]
        for append in self.harness.appends:
            if isinstance(append.then, OffsetsStored | OffsetsDeleted):
                parked.append(append.then.token)
        waiting = [token for token in self.live if self.harness.waits(token)]
        assert sorted(token for token in parked if token is not None) == sorted(waiting)

    @invariant()
    def no_timer_leaks(self) -> None:
        expected = {Timer(TimerKind.EXPIRY)}
        for group in self.harness.coordinator.ledger.groups.values():
            if group.state is State.PREPARING_REBALANCE:
                expected.add(group.join_timer)
            if group.unsynced:
                expected.add(group.sync_timer)
            expected |= {group.session_timer(member_id) for member_id in group.roster.pending}
            for member in group.roster:
                session = group.session_timer(member.member_id)
                if session in self.harness.timers or not member.waits:
                    expected.add(session)
        assert self.harness.timers.keys() == expected

    @invariant()
    def the_roster_is_sound(self) -> None:
        for group in self.harness.coordinator.ledger.groups.values():
            roster = group.roster
            ids = [member.member_id for member in roster]
            assert (not ids) == (
                group.state is State.EMPTY
            ) or group.state is State.PREPARING_REBALANCE
            assert roster.leader in ids if ids else roster.leader is None
            assert not roster.pending.keys() & set(ids)
            assert roster.joined == sum(member.join_token is not None for member in roster)
            assert group.unsynced <= set(ids)
            assert len(ids) <= 4 or group.state is State.PREPARING_REBALANCE
            for member in roster:
                assert member.sync_token is None or group.state is State.COMPLETING_REBALANCE
                for token in (member.join_token, member.sync_token):
                    assert token is None or roster.waiting(token) is member
                if member.instance_id is not None:
                    assert roster.static_id(member.instance_id) == member.member_id

    @invariant()
    def the_log_alone_is_enough(self) -> None:
        fresh = Coordinator(RULES)
        fresh.lead(LeaderEpoch(1), 0)
        for at, entry in enumerate(self.harness.log):
            if entry.record is None:
                fresh.replay_marker(LeaderEpoch(1), entry.producer_id, committed=entry.committed)
            else:
                fresh.replay(LeaderEpoch(1), Offset(at), *entry.record, entry.producer_id)
        assert self.offsets_known(fresh.ledger) == self.offsets_in_log()
        group = self.harness.coordinator.ledger.groups.get(GROUP)
        writing = any(
            isinstance(append.then, AssignmentStored | StaticMemberStored)
            for append in self.harness.appends
        )
        if group is not None and group.state is State.STABLE and not writing:
            again = fresh.ledger.groups[GROUP]
            assert again.generation == group.generation
            # A static member's id may be in the log with that of another one.
            assert {m.instance_id or m.member_id: m.assignment for m in again.roster} == {
                m.instance_id or m.member_id: m.assignment for m in group.roster
            }

    def teardown(self) -> None:
        """Remove all members; nothing must be left."""
        self.clients.clear()
        for _ in range(40):
            while self.harness.appends:
                self.append_committed()
            self.harness.advance(20_000)
        for token in self.live:
            assert not self.harness.waits(token)
        for producer in (1, 2):
            self.end_transaction(producer, committed=False)
        self.harness.auto = True
        self.harness.advance(500_000)
        assert self.harness.coordinator.ledger.groups == {}
        assert self.harness.timers.keys() == {Timer(TimerKind.EXPIRY)}


TestGroupModel = GroupModel.TestCase
TestGroupModel.settings = settings(
    max_examples=examples(25, usual=60), stateful_step_count=40, deadline=None
)


def test_acknowledged_commit_is_in_the_log() -> None:
    """The model assumes this for every commit; here it is checked once."""
    model = GroupModel()
    model.commit_alone(GROUP, PARTITIONS[0], 7, None)
    (token,) = model.commits
    model.append_committed()
    assert model.harness.answer(token, PartitionErrors).partitions[0][1] is ErrorCode.NONE
    assert model.offsets_in_log() == {(GROUP, "orders", 0): 7}
