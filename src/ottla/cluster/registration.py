"""Broker registrations: the content of their nodes, and whether a broker restarted uncleanly.

Invariant: a broker's counter node is written in the transaction that creates its registration. The
last transaction on the counter is therefore the broker epoch of the last registration, and the
counter knows since which broker epoch every restart was clean (rules A14 and B1).
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from msgspec import Struct

from ottla.cluster.image import Address, Broker
from ottla.cluster.znodes import UNCLEAN_RESTARTS, BadNode, broker_path, read_json, to_json
from ottla.ids import ZERO_UUID, BrokerEpoch, BrokerId, Uuid

NO_BROKER_EPOCH: Final = BrokerEpoch(-1)


class Registration(Struct, frozen=True):
    """A broker as it registers itself; the epoch of a broker that is not registered is -1."""

    broker: Broker
    incarnation: Uuid  # drawn when the process starts
    protocols: Mapping[str, str]  # security protocols, by listener name
    directories: tuple[Uuid, ...] = ()
    last_clean_epoch: BrokerEpoch = NO_BROKER_EPOCH  # of its last clean shutdown; -1: unclean
    timestamp_ms: int = 0
    was_taken_for_dead: bool = False  # the node was deleted while its session lived (rule B13)
    partitions_max: int | None = None  # that it may have; None: of a version that registers none

    def format(self) -> bytes:
        """Encode as Kafka does, with Ottla's own fields in an object of their own."""
        broker = self.broker
        first = next(iter(broker.addresses.values()))
        return to_json(
            {
                "features": {},
                "listener_security_protocol_map": dict(self.protocols),
                "endpoints": [f"{name}://{address}" for name, address in broker.addresses.items()],
                "jmx_port": -1,
                "port": first.port,
                "host": first.host,
                "version": 5,
                "timestamp": str(self.timestamp_ms),
                **({"rack": broker.rack} if broker.rack is not None else {}),
                "ottla": {
                    "host": broker.host,
                    "incarnation": str(self.incarnation),
                    "directories": [str(one) for one in self.directories],
                    "last_clean_epoch": self.last_clean_epoch,
                    **({"taken_for_dead": True} if self.was_taken_for_dead else {}),
                    **({} if (most := self.partitions_max) is None else {"partitions_max": most}),
                },
            }
        )


def parse_registration(data: bytes, broker: BrokerId, epoch: BrokerEpoch) -> Registration:
    """Parse the data of a broker's registration; its epoch is the node's czxid."""
    path = broker_path(broker)
    found = read_json(data, path)
    try:
        own: Mapping[str, Any] = found.get("ottla") or {}
        rack, host, most = found.get("rack"), own.get("host"), own.get("partitions_max")
        return Registration(
            Broker(
                broker,
                epoch,
                dict(map(_endpoint, found["endpoints"])),
                None if rack is None else str(rack),
                None if host is None else str(host),
            ),
            Uuid.parse(own["incarnation"]) if "incarnation" in own else ZERO_UUID,
            {str(name): str(one) for name, one in found["listener_security_protocol_map"].items()},
            tuple(Uuid.parse(one) for one in own.get("directories", ())),
            BrokerEpoch(int(own.get("last_clean_epoch", NO_BROKER_EPOCH))),
            int(found.get("timestamp", 0)),
            bool(own.get("taken_for_dead", False)),
            None if most is None else int(most),
        )
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        raise BadNode(f"{path}: {error!r}") from error


def _endpoint(text: str) -> tuple[str, Address]:
    name, _, address = text.partition("://")
    host, _, port = address.rpartition(":")
    return name, Address(host.strip("[]"), int(port))


class LastRegistration(NamedTuple):
    """The last registration of a broker, from its counter; the broker may be gone."""

    incarnation: Uuid
    epoch: BrokerEpoch
    clean_since: BrokerEpoch  # every restart after this broker epoch was clean


def is_unclean(last: LastRegistration | None, new: Registration) -> bool:
    """Whether a broker may have lost records since its last registration (rule A14).

    A process that registers again after its session expired has lost nothing. A new process has
    lost nothing if the last one shut down cleanly in the broker epoch that it had.
    """
    return last is None or (
        new.incarnation != last.incarnation and new.last_clean_epoch != last.epoch
    )


_THIS_REGISTRATION: Final = -1  # its epoch is not known when the counter is written


def format_counter(last: LastRegistration | None, new: Registration) -> bytes:
    """Encode the counter of a broker that registers."""
    clean_since = _THIS_REGISTRATION if last is None or is_unclean(last, new) else last.clean_since
    return to_json({"version": 1, "incarnation": str(new.incarnation), "clean_since": clean_since})


def parse_counter(data: bytes, path: str, epoch: BrokerEpoch) -> LastRegistration:
    """Parse a broker's counter; `epoch` is the transaction that wrote it (mzxid)."""
    found = read_json(data, path)
    try:
        since = int(found["clean_since"])
        return LastRegistration(
            Uuid.parse(found["incarnation"]),
            epoch,
            epoch if since == _THIS_REGISTRATION else BrokerEpoch(since),
        )
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        raise BadNode(f"{path}: {error!r}") from error


class Registered(NamedTuple):
    """A live broker."""

    registration: Registration
    counter_version: int  # a transaction that checks it fails once the broker registers again
    clean_since: BrokerEpoch

    @property
    def epoch(self) -> BrokerEpoch:
        """The broker epoch."""
        return self.registration.broker.epoch


class BrokerChanges(NamedTuple):
    """Brokers that died and brokers that were born; one that restarted has done both."""

    died: tuple[BrokerId, ...]
    born: tuple[BrokerId, ...]


def broker_changes(
    before: Mapping[BrokerId, Registered], after: Mapping[BrokerId, Registered]
) -> BrokerChanges:
    """Compare registrations; the same id with another broker epoch is another broker (rule B7)."""

    def missing(
        ones: Mapping[BrokerId, Registered], others: Mapping[BrokerId, Registered]
    ) -> Iterator[BrokerId]:
        for broker, one in sorted(ones.items()):
            other = others.get(broker)
            if other is None or other.epoch != one.epoch:
                yield broker

    return BrokerChanges(tuple(missing(before, after)), tuple(missing(after, before)))


def unclean_restarts(
    registered: Mapping[BrokerId, Registered], handled: Mapping[BrokerId, BrokerEpoch]
) -> dict[BrokerId, BrokerEpoch]:
    """Return the brokers that restarted uncleanly since the controller last handled a restart.

    The broker epochs are those to store as handled, after the brokers have left ISR and ELR.
    """
    return {
        broker: one.epoch
        for broker, one in registered.items()
        if one.clean_since > handled.get(broker, NO_BROKER_EPOCH)
    }


def format_handled_restarts(handled: Mapping[BrokerId, BrokerEpoch]) -> bytes:
    """Encode the broker epochs up to which unclean restarts are handled."""
    rows = {str(broker): epoch for broker, epoch in sorted(handled.items())}
    return to_json({"version": 1, "handled": rows})


def parse_handled_restarts(data: bytes) -> dict[BrokerId, BrokerEpoch]:
    """Parse the broker epochs up to which unclean restarts are handled."""
    try:
        rows = read_json(data, UNCLEAN_RESTARTS)["handled"].items()
        return {BrokerId(int(broker)): BrokerEpoch(int(epoch)) for broker, epoch in rows}
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        raise BadNode(f"{UNCLEAN_RESTARTS}: {error!r}") from error
