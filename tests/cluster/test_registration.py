"""Registrations: the content of their nodes, and who restarted uncleanly."""

import json

import pytest
from msgspec.structs import replace

from cases import each_case
from ottla.cluster.image import Address, Broker
from ottla.cluster.registration import (
    NO_BROKER_EPOCH,
    LastRegistration,
    Registered,
    Registration,
    broker_changes,
    format_counter,
    format_handled_restarts,
    is_unclean,
    parse_counter,
    parse_handled_restarts,
    parse_registration,
    unclean_restarts,
)
from ottla.cluster.znodes import BadNode
from ottla.ids import ZERO_UUID, BrokerEpoch, BrokerId, Uuid

ADDRESSES = {"PLAINTEXT": Address("here", 9092), "INSIDE": Address("::1", 9093)}
PROTOCOLS = {"PLAINTEXT": "PLAINTEXT", "INSIDE": "SSL"}
FIRST, SECOND = Uuid(b"1" * 16), Uuid(b"2" * 16)
ME = Registration(
    Broker(BrokerId(3), BrokerEpoch(17), ADDRESSES, "rack-a", "machine"),
    FIRST,
    PROTOCOLS,
    (Uuid(b"d" * 16),),
    BrokerEpoch(9),
    1234,
)


def test_registration_has_kafkas_fields_and_ottlas_own() -> None:
    assert json.loads(ME.format()) == {
        "version": 5,
        "host": "here",
        "port": 9092,
        "jmx_port": -1,
        "timestamp": "1234",
        "endpoints": ["PLAINTEXT://here:9092", "INSIDE://[::1]:9093"],
        "listener_security_protocol_map": PROTOCOLS,
        "features": {},
        "rack": "rack-a",
        "ottla": {
            "host": "machine",
            "incarnation": str(FIRST),
            "directories": [str(Uuid(b"d" * 16))],
            "last_clean_epoch": 9,
        },
    }
    assert parse_registration(ME.format(), BrokerId(3), BrokerEpoch(17)) == ME
    limited = replace(ME, partitions_max=150)
    assert json.loads(limited.format())["ottla"]["partitions_max"] == 150
    assert parse_registration(limited.format(), BrokerId(3), BrokerEpoch(17)) == limited
    bare = replace(ME, broker=replace(ME.broker, rack=None, host=None), directories=())
    assert parse_registration(bare.format(), BrokerId(3), BrokerEpoch(17)) == bare


def test_kafkas_registration_has_no_incarnation() -> None:
    data = json.loads(ME.format())
    del data["ottla"]
    found = parse_registration(json.dumps(data).encode(), BrokerId(3), BrokerEpoch(17))
    assert (found.incarnation, found.last_clean_epoch) == (ZERO_UUID, NO_BROKER_EPOCH)
    assert (found.broker.addresses, found.broker.host) == (ADDRESSES, None)
    assert found.partitions_max is None


@each_case("data", [b"", b"[]", b"{}", b'{"endpoints":["x"]}', b'{"clean_since":"x"}'])
def test_malformed_registration_raises_bad_node(data: bytes) -> None:
    with pytest.raises(BadNode, match="/brokers/ids/3"):
        parse_registration(data, BrokerId(3), BrokerEpoch(1))
    with pytest.raises(BadNode, match="/p"):
        parse_counter(data, "/p", BrokerEpoch(1))
    with pytest.raises(BadNode):
        parse_handled_restarts(data)


LAST = LastRegistration(FIRST, BrokerEpoch(9), BrokerEpoch(5))


@each_case(
    ("last", "incarnation", "clean_epoch", "unclean"),
    [
        (None, FIRST, -1, True),
        (None, FIRST, 9, True),
        (LAST, FIRST, -1, False),  # the same process
        (LAST, FIRST, 3, False),
        (LAST, SECOND, 9, False),  # the last process shut down cleanly
        (LAST, SECOND, -1, True),
        (LAST, SECOND, 5, True),  # an older process did
        (LAST, SECOND, 10, True),
    ],
)
def test_b1_clean_restart_needs_the_last_broker_epoch(
    last: LastRegistration | None, incarnation: Uuid, clean_epoch: int, unclean: bool
) -> None:
    new = replace(ME, incarnation=incarnation, last_clean_epoch=BrokerEpoch(clean_epoch))
    assert is_unclean(last, new) is unclean
    counted = parse_counter(format_counter(last, new), "/p", BrokerEpoch(20))
    since = 20 if unclean or last is None else last.clean_since
    assert counted == (incarnation, 20, since)


def live(broker: int, epoch: int, clean_since: int = 0) -> Registered:
    me = replace(ME.broker, id=BrokerId(broker), epoch=BrokerEpoch(epoch))
    return Registered(replace(ME, broker=me), 0, BrokerEpoch(clean_since))


def test_b1_unclean_restart_stays_until_it_is_handled() -> None:
    """A clean restart after an unclean one does not hide it."""
    brokers = {
        BrokerId(1): live(1, 30, 20),
        BrokerId(2): live(2, 31, 31),
        BrokerId(3): live(3, 32, 4),
    }
    epochs = {1: 12, 2: 31, 3: 9}
    handled = {BrokerId(broker): BrokerEpoch(epoch) for broker, epoch in epochs.items()}
    assert unclean_restarts(brokers, handled) == {1: 30}
    assert unclean_restarts(brokers, {}) == {1: 30, 2: 31, 3: 32}
    assert parse_handled_restarts(format_handled_restarts(handled)) == handled


def test_b7_same_id_with_another_epoch_died_and_was_born() -> None:
    before = {BrokerId(n): live(n, n) for n in (1, 2, 3)}
    after = {BrokerId(1): live(1, 1), BrokerId(3): live(3, 33), BrokerId(4): live(4, 34)}
    assert broker_changes(before, after) == ((2, 3), (3, 4))
    assert broker_changes(after, after) == ((), ())
