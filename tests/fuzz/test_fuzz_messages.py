"""Corrupt messages raise ProtocolViolation or decode to what the bytes contain."""

from collections.abc import Sequence
from random import Random
from typing import Final

import pytest

from cases import each_case
from fuzz_mutants import bounded_memory, explained, mutant, scaled, seeded
from ottla.errors import ProtocolViolation
from ottla.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_embedded,
)
from ottla.protocol.message import Message
from ottla.protocol.offsets_topic import TYPES as OFFSETS
from ottla.protocol.transactions_topic import TYPES as TRANSACTIONS
from protocol_reference import Refused, reference_decode
from protocol_values import MESSAGES, STORED, example, message

SHARDS: Final = 10
# The reference reader is slow. It checks every input that does not encode to the same bytes, and
# this share of the others.
JUDGED: Final = 8


def corpus_of(cls: type[Message], version: int) -> list[bytes]:
    random = Random(f"{cls.__name__} {version}")
    made = [example(cls, version, seed) for seed in range(2)]
    made += [message(random, cls, version) for _ in range(3)]
    return [raw for value in made if len(raw := value.encode(version)) < 4_000] or [b""]


def judge(cls: type[Message], version: int, raw: bytes, *, thorough: bool) -> bool:
    """Decode and compare with the reference reader; return whether the input was accepted."""
    try:
        value = cls.decode(raw, version)
    except ProtocolViolation:
        if thorough:
            with pytest.raises(Refused):
                reference_decode(cls, raw, version)
        return False
    again = value.encode(version)
    if again != raw or thorough:
        expected, liberties = reference_decode(cls, raw, version)
        assert bool(liberties) is (again != raw), liberties
        assert isinstance(expected, cls)
        # Compare bytes, because NaN is not equal to itself.
        assert expected.encode(version) == again
        assert cls.decode(again, version).encode(version) == again
    return True


@each_case("shard", range(SHARDS))
def test_corrupt_messages(shard: int) -> None:
    random = seeded("messages", shard)
    inputs = scaled("messages", SHARDS)
    cases = [
        (cls, version, corpus_of(cls, version))
        for cls in MESSAGES[shard::SHARDS]
        for version in cls.VERSIONS
    ]
    for cls, version, corpus in cases:  # compile readers and writers before memory is measured
        assert all(judge(cls, version, raw, thorough=True) for raw in corpus if raw)
    done = accepted = 0
    with bounded_memory():
        while done < inputs:
            cls, version, corpus = cases[done % len(cases)]
            raw = mutant(random, corpus)
            if random.randrange(16) == 0:
                version = random.choice([*cls.VERSIONS])  # decode bytes as another version
            with explained("messages", shard, done, cls=cls, version=version, raw=raw.hex()):
                accepted += judge(cls, version, raw, thorough=done % JUDGED == 0)
            done += 1
    assert done >= inputs
    # Too few means that corruption never gets past the first field; too many, that it has no
    # effect.
    assert inputs / 100 < accepted < inputs / 2


@each_case("topic", ["offsets", "transactions", "consumers"])
def test_corrupt_records_of_internal_topics(topic: str) -> None:
    random = seeded("stored", topic)
    inputs = scaled("stored", 3)
    feed = {"offsets": _offsets, "transactions": _transactions, "consumers": _consumers}[topic]
    corpora = _stored_corpora()
    outcomes = {True: 0, False: 0}
    with bounded_memory():
        for number in range(inputs):
            corpus = random.choice(corpora)
            raw = mutant(random, corpus)
            with explained("stored", topic, number, raw=raw.hex()):
                outcomes[feed(random, raw)] += 1
    assert sum(outcomes.values()) >= inputs
    assert min(outcomes.values()) > inputs / 1000


def _stored_corpora() -> list[list[bytes]]:
    """Return corpora with the two-byte version, or record type, in front."""
    stored = [*STORED, ConsumerProtocolSubscription, ConsumerProtocolAssignment]
    return [
        [number.to_bytes(2, "big") + raw for raw in corpus_of(cls, version)]
        for cls in stored
        for version in cls.VERSIONS
        for number in {version, 0, 1, 5, 16}
    ]


_OFFSET_KEYS: Final = [example(cls, 0) for cls in STORED if cls.__name__.endswith("Key")]


def _offsets(random: Random, raw: bytes) -> bool:
    keys = [key for key in _OFFSET_KEYS if type(key).__name__ != "TransactionLogKey"]
    try:
        if random.randrange(2):
            OFFSETS.decode_key(raw)
        else:
            OFFSETS.decode_value(random.choice(keys), raw)
    except ProtocolViolation:
        return False
    return True


def _transactions(random: Random, raw: bytes) -> bool:
    key = next(key for key in _OFFSET_KEYS if type(key).__name__ == "TransactionLogKey")
    try:
        if random.randrange(2):
            TRANSACTIONS.decode_key(raw)
        else:
            TRANSACTIONS.decode_value(key, raw)
    except ProtocolViolation:
        return False
    return True


def _consumers(random: Random, raw: bytes) -> bool:
    classes: Sequence[type[Message]] = (ConsumerProtocolSubscription, ConsumerProtocolAssignment)
    try:
        decode_embedded(random.choice(classes), raw)
    except ProtocolViolation:
        return False
    return True
