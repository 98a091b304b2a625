"""Checks of consistency between settings.

Invariant: a check reads a config whose single values are valid. Its finding lists all settings it
depends on, so that an invalid value is reported only once.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from posixpath import normpath  # works on text only, without file access
from typing import Any, Final, NamedTuple

from ottla.settings import broker, connection, consumer, ignored, producer, security, topic
from ottla.settings.config import Config, split_listener_name
from ottla.settings.config_def import Scope, Setting
from ottla.settings.config_types import BadValue
from ottla.settings.credentials import login_problems
from ottla.settings.derived import idempotence_conflict
from ottla.settings.endpoints import (
    Endpoint,
    advertised_listeners,
    connections_by_address,
    inter_broker_listener,
    inter_broker_mechanism,
    listeners,
    normalised_address,
    protocols,
)
from ottla.settings.invalid_settings import quoted

PLAINTEXT: Final = "PLAINTEXT"
DEDUPE_BYTES_MIN: Final = 1_048_576  # per cleaner, as in Kafka


class Finding(NamedTuple):
    """Inconsistent settings; the first one is named in the problem."""

    settings: tuple[Setting[Any], ...]
    what: str
    only_warn: bool = False
    name: str = ""  # overrides the name of the first setting, for a listener setting


Check = Callable[[Config], Iterator[Finding]]
Limit = tuple[Setting[int], Setting[int]]

# In each pair the first value must be at most the second.
_BROKER_ORDER: Final[tuple[Limit, ...]] = (
    (broker.GROUP_MIN_SESSION_TIMEOUT_MS, broker.GROUP_MAX_SESSION_TIMEOUT_MS),
    (broker.GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS, broker.GROUP_CONSUMER_SESSION_TIMEOUT_MS),
    (broker.GROUP_CONSUMER_SESSION_TIMEOUT_MS, broker.GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS),
    (broker.GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS, broker.GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS),
    (broker.GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS, broker.GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS),
    (
        broker.GROUP_CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS,
        broker.GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS,
    ),
    (
        broker.GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS,
        broker.GROUP_CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS,
    ),
    (broker.GROUP_SHARE_MIN_SESSION_TIMEOUT_MS, broker.GROUP_SHARE_SESSION_TIMEOUT_MS),
    (broker.GROUP_SHARE_SESSION_TIMEOUT_MS, broker.GROUP_SHARE_MAX_SESSION_TIMEOUT_MS),
    (broker.GROUP_SHARE_MIN_HEARTBEAT_INTERVAL_MS, broker.GROUP_SHARE_HEARTBEAT_INTERVAL_MS),
    (broker.GROUP_SHARE_HEARTBEAT_INTERVAL_MS, broker.GROUP_SHARE_MAX_HEARTBEAT_INTERVAL_MS),
    (broker.GROUP_SHARE_MIN_ASSIGNMENT_INTERVAL_MS, broker.GROUP_SHARE_ASSIGNMENT_INTERVAL_MS),
    (broker.GROUP_SHARE_ASSIGNMENT_INTERVAL_MS, broker.GROUP_SHARE_MAX_ASSIGNMENT_INTERVAL_MS),
    (broker.GROUP_SHARE_MIN_DELIVERY_COUNT_LIMIT, broker.GROUP_SHARE_DELIVERY_COUNT_LIMIT),
    (broker.GROUP_SHARE_DELIVERY_COUNT_LIMIT, broker.GROUP_SHARE_MAX_DELIVERY_COUNT_LIMIT),
    (broker.GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS, broker.GROUP_SHARE_RECORD_LOCK_DURATION_MS),
    (broker.GROUP_SHARE_RECORD_LOCK_DURATION_MS, broker.GROUP_SHARE_MAX_RECORD_LOCK_DURATION_MS),
    (
        broker.GROUP_SHARE_MIN_PARTITION_MAX_RECORD_LOCKS,
        broker.GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS,
    ),
    (
        broker.GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS,
        broker.GROUP_SHARE_MAX_PARTITION_MAX_RECORD_LOCKS,
    ),
    (broker.REPLICA_FETCH_WAIT_MAX_MS, broker.REPLICA_SOCKET_TIMEOUT_MS),
    (broker.REPLICA_FETCH_WAIT_MAX_MS, broker.REPLICA_LAG_TIME_MAX_MS),
    (broker.LOG_CLEANER_MIN_COMPACTION_LAG_MS, broker.LOG_CLEANER_MAX_COMPACTION_LAG_MS),
    (
        broker.ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MS,
        broker.ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MAX_MS,
    ),
)
# In each pair the first value must be less than the second.
_BROKER_STRICT_ORDER: Final[tuple[Limit, ...]] = (
    (broker.GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS, broker.GROUP_CONSUMER_SESSION_TIMEOUT_MS),
    (broker.GROUP_SHARE_HEARTBEAT_INTERVAL_MS, broker.GROUP_SHARE_SESSION_TIMEOUT_MS),
)


def _in_order(
    config: Config, low: Setting[int], high: Setting[int], *, strict: bool = False
) -> Iterator[Finding]:
    """Yield a finding if low exceeds high. It names the setting that was set."""
    if config[low] < config[high] or (config[low] == config[high] and not strict):
        return
    subject, other, relation = (
        (high, low, "greater than" if strict else "at least")
        if config.is_set(high) and not config.is_set(low)
        else (low, high, "less than" if strict else "at most")
    )
    value, bound = config[subject], config[other]
    what = f'invalid value "{value}": must be {relation} {other.name}, which is {bound}'
    yield Finding((subject, other), what)


def _broker_orders(config: Config) -> Iterator[Finding]:
    for low, high in _BROKER_ORDER:
        yield from _in_order(config, low, high)
    for low, high in _BROKER_STRICT_ORDER:
        yield from _in_order(config, low, high, strict=True)
    if config[broker.CONNECTIONS_MAX_IDLE_MS] > 0:
        delay = broker.CONNECTION_FAILED_AUTHENTICATION_DELAY_MS
        yield from _in_order(config, delay, broker.CONNECTIONS_MAX_IDLE_MS, strict=True)


def _identity(config: Config) -> Iterator[Finding]:
    node_id, older = config[broker.NODE_ID], config[broker.BROKER_ID]
    if node_id is not None and older >= 0 and node_id != older:
        what = f'invalid value "{older}": must equal {broker.NODE_ID.name}, which is {node_id}'
        yield Finding((broker.BROKER_ID, broker.NODE_ID), what)


def _directories(config: Config) -> Iterator[Finding]:
    for setting, paths in (
        (broker.LOG_DIRS, config[broker.LOG_DIRS] or ()),
        (broker.LOG_DIR, config[broker.LOG_DIR]),
    ):
        seen: dict[str, str] = {}
        for given in paths:
            if (other := seen.setdefault(normpath(given), given)) != given:
                what = f'"{given}" and "{other}" are the same directory; list it once'
                yield Finding((setting,), what)


def _log(config: Config) -> Iterator[Finding]:
    size, threads = broker.LOG_CLEANER_DEDUPE_BUFFER_SIZE, broker.LOG_CLEANER_THREADS
    least = config[threads] * DEDUPE_BYTES_MIN
    if config[size] < least:
        what = f'invalid value "{config[size]}": must be at least {least}'
        why = f"{DEDUPE_BYTES_MIN} for each of {threads.name}"
        yield Finding((size, threads), f"{what}, which is {why}")
    load = broker.LOG_CLEANER_IO_BUFFER_LOAD_FACTOR
    if not 0 < config[load] <= 1:
        what = f'invalid value "{config[load]}": must be greater than 0 and at most 1'
        yield Finding((load,), what)
    least_in_sync, replicas = broker.MIN_INSYNC_REPLICAS, broker.DEFAULT_REPLICATION_FACTOR
    if config[least_in_sync] > config[replicas]:
        what = f"{config[least_in_sync]} exceeds {replicas.name}, which is {config[replicas]}:"
        what = f"{what} acks=all waits for all replicas of a new topic"
        yield Finding((least_in_sync, replicas), what, only_warn=True)


def _authorizer(config: Config) -> Iterator[Finding]:
    if config[broker.AUTHORIZER_CLASS_NAME]:
        return
    for setting in (broker.SUPER_USERS, broker.ALLOW_EVERYONE_IF_NO_ACL_FOUND):
        if config.is_set(setting):
            authorizer = broker.AUTHORIZER_CLASS_NAME.name
            what = f"no effect, because {authorizer} is empty: all requests are allowed"
            yield Finding((setting, broker.AUTHORIZER_CLASS_NAME), what, only_warn=True)


LISTENERS_MAX: Final = 100

_LISTENER_SETTINGS: Final = (
    broker.LISTENERS,
    broker.LISTENER_SECURITY_PROTOCOL_MAP,
    broker.CONTROLLER_LISTENER_NAMES,
)


def _listeners(config: Config) -> Iterator[Finding]:
    """Check the listeners. If one cannot be parsed, the checks that depend on it are skipped."""
    try:
        protocols(config)
    except BadValue as bad:
        found = quoted(config[broker.LISTENER_SECURITY_PROTOCOL_MAP])
        expected = broker.LISTENER_SECURITY_PROTOCOL_MAP.range_text
        what = f"invalid value {found} ({bad.note}): expected {expected}"
        yield Finding((broker.LISTENER_SECURITY_PROTOCOL_MAP,), what)
        return
    try:
        opened = listeners(config)
    except BadValue as bad:
        yield _unreadable(config, broker.LISTENERS, bad)
        return
    try:
        advertised = advertised_listeners(config)
    except BadValue as bad:
        yield _unreadable(config, broker.ADVERTISED_LISTENERS, bad)
        return
    if not opened:
        what = f"{broker.CONTROLLER_LISTENER_NAMES.name} contains all listeners of the broker"
        yield Finding(_LISTENER_SETTINGS, what)
        return
    yield from _distinct(opened)
    yield from _advertised(config, opened, advertised)
    yield from _between_brokers(config, opened)
    yield from _listeners_own(config, opened)
    for endpoint in opened:
        yield from _stores(config.listener(endpoint.name))


def _named_hosts(config: Config) -> Iterator[Finding]:
    for host in connections_by_address(config):
        if normalised_address(host) is None:
            what = f"{quoted(host)} has no effect: use an IP address, host names are not resolved"
            yield Finding((broker.MAX_CONNECTIONS_PER_IP_OVERRIDES,), what, only_warn=True)


def _unreadable(config: Config, setting: Setting[Any], bad: BadValue) -> Finding:
    found = quoted(config.text(setting) or "")
    what = f"invalid value {found} ({bad.note}): expected name://host:port,..."
    return Finding((setting, *_LISTENER_SETTINGS), what)


def _distinct(opened: tuple[Endpoint, ...]) -> Iterator[Finding]:
    if len(opened) > LISTENERS_MAX:
        what = f"{len(opened)} listeners exceed the maximum of {LISTENERS_MAX}"
        yield Finding(_LISTENER_SETTINGS, what)
        return
    for at, endpoint in enumerate(opened):
        for other in opened[:at]:
            if endpoint.name == other.name:
                yield Finding(_LISTENER_SETTINGS, f"duplicate listener name {endpoint.name}")
            elif endpoint.port == other.port != 0 and _overlap(endpoint.host, other.host):
                what = f"{other} and {endpoint} have the same port"
                yield Finding(_LISTENER_SETTINGS, what)


def _overlap(one: str, other: str) -> bool:
    """Whether two hosts can be the same interface. IPv4 and IPv6 addresses are different."""
    if one == other or "" in (one, other):
        return True
    if (":" in one) != (":" in other):
        return False
    return one in ("0.0.0.0", "::") or other in ("0.0.0.0", "::")


def _advertised(
    config: Config, opened: tuple[Endpoint, ...], advertised: tuple[Endpoint, ...]
) -> Iterator[Finding]:
    is_advertised = config[broker.ADVERTISED_LISTENERS] is not None
    subject = broker.ADVERTISED_LISTENERS if is_advertised else broker.LISTENERS
    involved = (subject, broker.ADVERTISED_LISTENERS, *_LISTENER_SETTINGS)
    names = {endpoint.name for endpoint in opened}
    for endpoint in advertised:
        if endpoint.name not in names:
            yield Finding(involved, f"{endpoint.name} is not one of {broker.LISTENERS.name}")
        if endpoint.host in ("0.0.0.0", "::"):
            what = f"clients cannot connect to {endpoint}; set advertised.listeners to a host name"
            yield Finding(involved, f"{what} or address of this broker")


def _between_brokers(config: Config, opened: tuple[Endpoint, ...]) -> Iterator[Finding]:
    name, protocol = broker.INTER_BROKER_LISTENER_NAME, broker.SECURITY_INTER_BROKER_PROTOCOL
    involved = (name, protocol, *_LISTENER_SETTINGS)
    if config.is_set(name) and config.is_set(protocol):
        yield Finding(involved, f"conflicts with {protocol.name}; set only one of them")
        return
    listener = inter_broker_listener(config)
    if listener is None:
        names = ", ".join(endpoint.name for endpoint in opened)
        what = f"no inter-broker listener: expected one of [{names}]"
        yield Finding(involved, what)
        return
    mechanism = inter_broker_mechanism(config, listener.name)
    enabled = config.listener(listener.name)[broker.SASL_ENABLED_MECHANISMS]
    if listener.sasl and enabled and mechanism not in enabled:
        found = f'invalid value "{mechanism}"' if mechanism else "not set"
        what = f"{found}: expected one of {broker.SASL_ENABLED_MECHANISMS.name}"
        settings = (broker.SASL_MECHANISM_INTER_BROKER_PROTOCOL, broker.SASL_ENABLED_MECHANISMS)
        yield Finding((*settings, *involved), f"{what} [{', '.join(enabled)}]")


def _listeners_own(config: Config, opened: tuple[Endpoint, ...]) -> Iterator[Finding]:
    """Report settings of a listener that is not open; warn only if the protocol map has it."""
    controllers = config[broker.CONTROLLER_LISTENER_NAMES]
    known = {endpoint.name for endpoint in opened} | {name.upper() for name in controllers}
    for name in config.given:
        parts = split_listener_name(name, security.MECHANISMS)
        if parts is None or parts.listener.upper() in known:
            continue
        if parts.listener.upper() in protocols(config):
            what = f"no effect, because {broker.LISTENERS.name} does not contain {parts.listener}"
            yield Finding(_LISTENER_SETTINGS, what, only_warn=True, name=name)
            continue
        names = ", ".join(sorted(each.lower() for each in known))
        what = f"unknown listener {quoted(parts.listener)}: expected one of [{names}]"
        yield Finding(_LISTENER_SETTINGS, what, name=name)


def _stores(config: Config) -> Iterator[Finding]:
    """Check that key and certificate, and trusted certificates, come from one source each."""
    key, chain = security.SSL_KEYSTORE_KEY, security.SSL_KEYSTORE_CERTIFICATE_CHAIN
    location = security.SSL_KEYSTORE_LOCATION
    for one, other in ((key, chain), (chain, key)):
        if config[one] is not None and config[other] is None:
            yield Finding((one, other), f"requires {other.name}")
    if config[key] is not None and config[location] is not None:
        yield Finding((key, location), f"conflicts with {location.name}; set only one of them")
    trusted, file = security.SSL_TRUSTSTORE_CERTIFICATES, security.SSL_TRUSTSTORE_LOCATION
    if config[trusted] is not None and config[file] is not None:
        yield Finding((trusted, file), f"conflicts with {file.name}; set only one of them")


def _topic(config: Config) -> Iterator[Finding]:
    yield from _in_order(config, topic.MIN_COMPACTION_LAG_MS, topic.MAX_COMPACTION_LAG_MS)


def _login(config: Config) -> Iterator[Finding]:
    for settings, what in login_problems(config):
        yield Finding(settings, what)


def _idempotence(config: Config) -> Iterator[Finding]:
    wanted, transactions = producer.ENABLE_IDEMPOTENCE, producer.TRANSACTIONAL_ID
    conflict = idempotence_conflict(config)
    if config[wanted] and conflict is not None:
        because = f"{conflict.name} is {config.text(conflict)}"
        needed = config.is_set(wanted) or config[transactions] is not None
        what = f"not possible, because {because}" if needed else f"disabled, because {because}"
        yield Finding((wanted, conflict, transactions), what, only_warn=not needed)
    if not config[wanted] and config[transactions] is not None:
        what = f'invalid value "false": must be true, because {transactions.name} is set'
        yield Finding((wanted, transactions), what)


def _producer_times(config: Config) -> Iterator[Finding]:
    total, wait, request = (
        producer.DELIVERY_TIMEOUT_MS,
        producer.LINGER_MS,
        connection.REQUEST_TIMEOUT_MS,
    )
    least_ms = config[wait] + config[request]
    if config[total] < least_ms:
        if config.is_set(total):
            what = f'invalid value "{config[total]}": must be at least {wait.name} plus'
            yield Finding((total, wait, request), f"{what} {request.name}, which is {least_ms}")
        else:
            what = f"raised to {least_ms}, which is {wait.name} plus {request.name}"
            yield Finding((total, wait, request), what, only_warn=True)
    two_phase, limit = producer.TRANSACTION_TWO_PHASE_COMMIT_ENABLE, producer.TRANSACTION_TIMEOUT_MS
    if config[two_phase] and config.is_set(limit):
        what = f"conflicts with {two_phase.name}, whose transactions have no timeout"
        yield Finding((limit, two_phase), what)


def _consumer(config: Config) -> Iterator[Finding]:
    heartbeat, session = consumer.HEARTBEAT_INTERVAL_MS, consumer.SESSION_TIMEOUT_MS
    protocol = consumer.GROUP_PROTOCOL
    if config[protocol] == "consumer":
        for setting in (heartbeat, session, consumer.PARTITION_ASSIGNMENT_STRATEGY):
            if config.is_set(setting):
                what = f"not allowed with {protocol.name}=consumer: the broker configures it"
                yield Finding((setting, protocol), what)
    else:
        yield from _in_order(config, heartbeat, session, strict=True)
        if config[consumer.GROUP_REMOTE_ASSIGNOR] is not None:
            what = f"requires {protocol.name}=consumer"
            yield Finding((consumer.GROUP_REMOTE_ASSIGNOR, protocol), what)
    commits = consumer.ENABLE_AUTO_COMMIT
    if config[consumer.GROUP_ID] is None and config.is_set(commits) and config[commits]:
        what = f'invalid value "true": must be false, because {consumer.GROUP_ID.name} is not set'
        yield Finding((commits, consumer.GROUP_ID), what)


# What Ottla does not support yet. Each finding depends only on the setting that it names, so that
# the user learns of all of them in one start.

_NOT_YET: Final = "is not supported yet"


def _tls_and_sasl_not_supported_yet(config: Config) -> Iterator[Finding]:
    """Refuse TLS and SASL: the listener would be open to everyone."""
    try:
        protocol_of = protocols(config)
    except BadValue:  # reported by _listeners
        return
    # Ottla does not open the listeners of a KRaft controller.
    controllers = {name.upper(): PLAINTEXT for name in config[broker.CONTROLLER_LISTENER_NAMES]}
    protocol_of = {**protocol_of, **controllers}
    between = config[broker.INTER_BROKER_LISTENER_NAME]
    for setting, names in (
        (broker.LISTENERS, config[broker.LISTENERS]),
        (broker.ADVERTISED_LISTENERS, config[broker.ADVERTISED_LISTENERS] or ()),
        (broker.INTER_BROKER_LISTENER_NAME, (between,) if between else ()),
    ):
        for text in names:
            name = text.partition(":")[0].upper()
            protocol = protocol_of.get(name, PLAINTEXT)
            if protocol != PLAINTEXT:
                what = f"listener {name}: {protocol} {_NOT_YET}; use {PLAINTEXT}"
                yield Finding((setting,), what)
    setting = broker.SECURITY_INTER_BROKER_PROTOCOL
    if config[setting] != PLAINTEXT:
        yield Finding((setting,), f"{config[setting]} {_NOT_YET}; use {PLAINTEXT}")


def _acls_not_supported_yet(config: Config) -> Iterator[Finding]:
    """Refuse an authorizer: every request would be allowed."""
    if config[broker.AUTHORIZER_CLASS_NAME]:
        what = "ACLs are not supported yet; remove the setting and use a trusted network"
        yield Finding((broker.AUTHORIZER_CLASS_NAME,), what)


# The beginnings of the names of settings, and what they belong to.
_TO_COME: Final[Mapping[str, str]] = {
    "add.partitions.to.txn.": "transactions",
    "connections.max.reauth.": "SASL",
    "controller.quota.": "quotas",
    "group.consumer.": "the new consumer group protocol",
    "group.share.": "share groups",
    "quota.": "quotas",
    "sasl.": "SASL",
    "share.coordinator.": "share groups",
    "ssl.": "TLS",
    "transaction.": "transactions",
    "transactional.": "transactions",
}
# Kafka's own server.properties sets these for a single broker.
_HARMLESS: Final = (".replication.factor", ".min.isr")


def _no_effect_yet(config: Config) -> Iterator[Finding]:
    """Warn of settings that count on what is not supported yet, security above all."""
    for setting in config.table.settings.values():
        if not config.is_set(setting) or setting.no_effect or setting.name.endswith(_HARMLESS):
            continue
        what = next((of for start, of in _TO_COME.items() if setting.name.startswith(start)), None)
        if what is not None:
            verb = "are" if what.endswith("s") else "is"
            yield Finding((setting,), f"no effect: {what} {verb} not supported yet", only_warn=True)


def _quorums(config: Config) -> Iterator[Finding]:
    """Refuse the settings of a KRaft cluster of several brokers, unless ZooKeeper is set instead.

    Otherwise each of the brokers would silently be a cluster of its own.
    """
    for several in (ignored.CONTROLLER_QUORUM_VOTERS, ignored.CONTROLLER_QUORUM_BOOTSTRAP_SERVERS):
        if len(config[several]) > 1 and config[broker.ZOOKEEPER_CONNECT] is None:
            what = f"Ottla has no KRaft quorum; set {broker.ZOOKEEPER_CONNECT.name} for a cluster, "
            yield Finding((several,), f"{what}or keep one entry to run a single broker")
    roles = ignored.PROCESS_ROLES
    if config[roles] and "broker" not in config[roles]:
        found = quoted(config.text(roles) or "")
        what = f"invalid value {found}: expected broker or broker,controller, because every broker"
        yield Finding((roles,), f"{what} can become the controller")


def _one_broker(config: Config) -> Iterator[Finding]:
    """Warn of settings that count on other brokers, if there are none."""
    if config[broker.ZOOKEEPER_CONNECT] is not None:
        return
    factor, least_in_sync = broker.DEFAULT_REPLICATION_FACTOR, broker.MIN_INSYNC_REPLICAS
    if config[factor] > 1:
        what = f"{config[factor]} exceeds the number of brokers, which is 1: creating a topic fails"
        yield Finding((factor,), f"{what} unless the request has a replication factor", True)
    if 1 < config[least_in_sync] <= config[factor]:
        what = "no effect with a single broker: acks=all waits for one replica"
        yield Finding((least_in_sync, factor), what, only_warn=True)
    for internal in (
        broker.OFFSETS_TOPIC_REPLICATION_FACTOR,
        broker.TRANSACTION_STATE_LOG_REPLICATION_FACTOR,
        broker.TRANSACTION_STATE_LOG_MIN_ISR,
    ):
        if config.is_set(internal) and config[internal] > 1:
            yield Finding((internal,), "no effect with a single broker: 1 applies", only_warn=True)


NOT_SUPPORTED_YET: Final[tuple[Check, ...]] = (
    _tls_and_sasl_not_supported_yet,
    _acls_not_supported_yet,
    _no_effect_yet,
    _quorums,
    _one_broker,
)

_CLIENT: Final[tuple[Check, ...]] = (_stores, _login)

CHECKS: Final[Mapping[Scope, tuple[Check, ...]]] = {
    "broker": (
        _identity,
        _listeners,
        _named_hosts,
        _broker_orders,
        _directories,
        _log,
        _authorizer,
    ),
    "topic": (_topic,),
    "producer": (*_CLIENT, _idempotence, _producer_times),
    "consumer": (*_CLIENT, _consumer),
    "admin": _CLIENT,
}


def findings(config: Config, more: Iterable[Check] = ()) -> Iterator[Finding]:
    """Yield all inconsistencies of a config, and what the checks in `more` find."""
    for check in (*more, *CHECKS[config.table.scope]):
        yield from check(config)
