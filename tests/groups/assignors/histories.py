"""Random groups whose members come and go: the input and results of their assignors, by seed."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from random import Random

from ottla.groups.assignors.assignor import ASSIGNORS, Assignor, RebalanceProtocol
from ottla.groups.assignors.messages import (
    assignment_bytes,
    read_assignment,
    read_subscription,
    subscription_bytes,
)
from ottla.groups.assignors.subscription import Assignment, Subscription, TopicLayout
from ottla.ids import PartitionIndex, TopicPartition
from ottla.protocol.consumer_protocol import (
    ConsumerProtocolSubscription,
    decode_embedded,
    encode_embedded,
)

# Names with equal hashes, names that Java and Python order differently, and plain names.
NAMES = [
    *("AaAa", "BBBB", "AaBB", "BBAa", "a", "b", "t-1", "t-2", "orders", "payments.v2"),
    *(f"topic-{index}" for index in range(40)),
]
CLIENTS = ["consumer", "c", "\uffee", "\U0001f600", "AaAa", "BBBB"]
RACKS = ["r1", "r2", "r3", ""]
NOT_THERE = "not-there"
ROUNDS = 8


@dataclass
class Member:
    """A consumer with its subscription and its last assignment."""

    member_id: str
    topics: tuple[str, ...]
    assignor: Assignor
    group_instance_id: str | None = None
    rack: str | None = None
    version: int = 3
    """Version of its subscriptions; below 2 they have no generation, below 1 no owned partitions.
    """
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1

    def subscription(self) -> Subscription:
        eager = RebalanceProtocol.COOPERATIVE not in self.assignor.protocols
        return Subscription(
            topics=self.topics,
            owned=() if eager else self.owned,
            generation=self.generation,
            user_data=self.assignor.user_data(),
            group_instance_id=self.group_instance_id,
            rack=self.rack,
        )

    def receive(self, partitions: tuple[TopicPartition, ...], generation: int) -> None:
        self.owned = read_assignment(assignment_bytes(partitions))
        self.generation = generation
        self.assignor.on_assignment(self.owned, generation)


@dataclass(frozen=True)
class Round:
    """One rebalance."""

    generation: int
    new_leader: bool
    topics: dict[str, TopicLayout]
    members: dict[str, Subscription]
    sent: dict[str, bytes]
    assignment: Assignment


@dataclass
class Group:
    """A group over several rebalances."""

    random: Random
    name: str
    kind: "Kind"
    topics: dict[str, TopicLayout] = field(default_factory=dict[str, TopicLayout])
    members: dict[str, Member] = field(default_factory=dict[str, Member])
    generation: int = 0
    joined: int = 0

    def rounds(self, count: int) -> Iterator[Round]:
        for _ in range(self.random.choice([1, 2, 3, 6, 20])):
            self.add_topic()
        self.shared = self.choose_topics()
        for _ in range(self.random.choice([1, 2, 3, 5, 8, 20])):
            self.join()
        leader = ASSIGNORS[self.name]()
        for number in range(count):
            new_leader = number == 0 or self.random.random() < 0.2
            if new_leader:
                leader = ASSIGNORS[self.name]()
            yield self.rebalance(leader, new_leader)
            self.change()

    def rebalance(self, leader: Assignor, new_leader: bool) -> Round:
        self.generation += 1
        asked = {key: each.subscription() for key, each in self.members.items()}
        if self.kind.disorder:
            asked = {key: self.disturbed(each) for key, each in asked.items()}
        sent = {key: sent_bytes(each, self.members[key].version) for key, each in asked.items()}
        asked = {
            key: read_subscription(data, asked[key].group_instance_id) for key, data in sent.items()
        }
        found = leader.assign(self.topics, asked)
        for key, member in self.members.items():
            # A member that misses the response returns with an old generation.
            if not (self.kind.disorder and self.random.random() < 0.2):
                member.receive(found[key], self.generation)
        return Round(self.generation, new_leader, dict(self.topics), asked, sent, found)

    def disturbed(self, asked: Subscription) -> Subscription:
        other = self.random.choice(list(self.members.values())).subscription()
        # Another test covers members that owned a partition of an unsubscribed topic.
        if self.random.random() < 0.08 and set(other.topics) <= set(asked.topics):
            return replace(asked, owned=other.owned, user_data=other.user_data)
        if self.random.random() < 0.04:
            broken = self.random.choice([b"", b"\0", (asked.user_data or b"")[:-3], b"\xff" * 9])
            return replace(asked, generation=-1, user_data=broken)
        return asked

    def change(self) -> None:
        for _ in range(self.random.choice([0, 1, 1, 2, 4])):
            what = self.random.random()
            if what < 0.35 or len(self.members) < 2:
                self.join()
            elif what < 0.65:
                del self.members[self.random.choice(list(self.members))]
            elif what < 0.75:
                self.add_topic()
            elif what < 0.85:
                self.grow_topic()
            elif what < 0.9:
                if len(self.topics) > 1:
                    del self.topics[self.random.choice(list(self.topics))]
            elif self.kind.alike:
                self.resubscribe_all()
            else:
                self.resubscribe(self.random.choice(list(self.members.values())))

    def join(self) -> None:
        random = self.random
        self.joined += 1
        member_id = f"{random.choice(CLIENTS)}-{self.joined}-{random.getrandbits(32):08x}"
        self.members[member_id] = Member(
            member_id,
            self.shared if self.kind.alike else self.choose_topics(),
            ASSIGNORS[self.name](),
            f"i{random.randrange(1000)}-{self.joined}" if random.random() < 0.3 else None,
            random.choice(RACKS) or None if self.kind.racks else None,
            random.choice([0, 1, 2, 3, 3, 3]) if self.kind.disorder else 3,
        )

    def choose_topics(self) -> tuple[str, ...]:
        names = list(self.topics)
        chosen = self.random.sample(names, self.random.randint(1, len(names)))
        return (*chosen, NOT_THERE) if self.random.random() < 0.1 else tuple(chosen)

    def resubscribe(self, member: Member) -> None:
        if not self.kind.disorder:  # a member that missed a rebalance may have owned any topic
            member.topics = self.choose_topics()
            member.owned = tuple(each for each in member.owned if each.topic in member.topics)

    def resubscribe_all(self) -> None:
        self.shared = self.choose_topics()
        for member in self.members.values():
            member.topics = self.shared
            member.owned = tuple(each for each in member.owned if each.topic in member.topics)

    def add_topic(self) -> None:
        name = self.random.choice(NAMES)
        if name not in self.topics:
            self.topics[name] = self.layout(self.random.choice([1, 2, 3, 6, 7, 12, 33]), ())

    def grow_topic(self) -> None:
        name = self.random.choice(list(self.topics))
        before = self.topics[name]
        self.topics[name] = self.layout(before.partitions + 2, before.racks)

    def layout(self, partitions: int, racks: tuple[frozenset[str], ...]) -> TopicLayout:
        if not self.kind.racks:
            return TopicLayout(partitions)
        count = self.random.choice([1, 2, 2, 3])
        new = [
            frozenset(self.random.sample(RACKS[:3], count)) for _ in range(len(racks), partitions)
        ]
        return TopicLayout(partitions, (*racks, *new))


@dataclass(frozen=True)
class Kind:
    """Properties of a group."""

    alike: bool
    """All members subscribe to the same topics."""
    racks: bool = False
    disorder: bool = False
    """Members miss rebalances, claim partitions of others, and send invalid user data."""


KINDS = [
    Kind(alike, racks, disorder)
    for alike in (True, False)
    for racks in (True, False)
    for disorder in (True, False)
]


def history(name: str, kind: Kind, seed: int) -> list[Round]:
    """Return the rebalances of a group with one assignor."""
    return list(Group(Random(seed), name, kind).rounds(ROUNDS))


def sent_bytes(subscription: Subscription, version: int) -> bytes:
    """Encode a subscription as an older client does."""
    newest = subscription_bytes(subscription)
    return encode_embedded(decode_embedded(ConsumerProtocolSubscription, newest), version)


def partition(topic: str, index: int) -> TopicPartition:
    return TopicPartition(topic, PartitionIndex(index))
