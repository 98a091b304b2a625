"""What has to hold between settings, beyond the range of each.

Invariant: a check reads a configuration whose single values are valid, changes nothing, and
names every setting its finding rests on, so that one broken value is not reported twice.
"""

from collections.abc import Callable, Iterator, Mapping
from posixpath import normpath  # of texts alone: no file is looked at
from typing import Any, Final, NamedTuple

from ottla.settings import broker, connection, consumer, producer, security, topic
from ottla.settings.config import Config, split_listener_name
from ottla.settings.config_def import Scope, Setting
from ottla.settings.config_types import BadValue
from ottla.settings.credentials import login_problems
from ottla.settings.derived import idempotence_hindrance
from ottla.settings.endpoints import (
    Endpoint,
    advertised_listeners,
    connections_by_address,
    inter_broker_listener,
    inter_broker_mechanism,
    listeners,
    protocols,
    usual_address,
)
from ottla.settings.invalid_settings import quoted

DEDUPE_BYTES_MIN: Final = 1_048_576  # per cleaner, as in Kafka: less finds hardly any duplicates


class Finding(NamedTuple):
    """Settings that do not go together; the first of them is the one to name."""

    settings: tuple[Setting[Any], ...]
    what: str
    only_warn: bool = False
    name: str = ""  # in place of the first setting's, for a listener's own


Check = Callable[[Config], Iterator[Finding]]
Limit = tuple[Setting[int], Setting[int]]

# In each pair the first may not be above the second.
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
# In each pair the first has to be below the second.
_BROKER_STRICT_ORDER: Final[tuple[Limit, ...]] = (
    (broker.GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS, broker.GROUP_CONSUMER_SESSION_TIMEOUT_MS),
    (broker.GROUP_SHARE_HEARTBEAT_INTERVAL_MS, broker.GROUP_SHARE_SESSION_TIMEOUT_MS),
)


def _in_order(
    config: Config, low: Setting[int], high: Setting[int], *, strict: bool = False
) -> Iterator[Finding]:
    """A finding when low is above high, told about the one that somebody set."""
    if config[low] < config[high] or (config[low] == config[high] and not strict):
        return
    subject, other, relation = (
        (high, low, "above" if strict else "at least")
        if config.is_set(high) and not config.is_set(low)
        else (low, high, "below" if strict else "at most")
    )
    what = f'found "{config[subject]}", valid: {relation} {other.name}, which is {config[other]}'
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
        what = f'found "{older}", valid: the same as {broker.NODE_ID.name}, which is {node_id}'
        yield Finding((broker.BROKER_ID, broker.NODE_ID), what)


def _directories(config: Config) -> Iterator[Finding]:
    for setting, paths in (
        (broker.LOG_DIRS, config[broker.LOG_DIRS] or ()),
        (broker.LOG_DIR, config[broker.LOG_DIR]),
    ):
        seen: dict[str, str] = {}
        for given in paths:
            if (other := seen.setdefault(normpath(given), given)) != given:
                what = f'found "{given}" and "{other}", valid: each directory once'
                yield Finding((setting,), what)


def _log(config: Config) -> Iterator[Finding]:
    size, threads = broker.LOG_CLEANER_DEDUPE_BUFFER_SIZE, broker.LOG_CLEANER_THREADS
    least = config[threads] * DEDUPE_BYTES_MIN
    if config[size] < least:
        what = f'found "{config[size]}", valid: at least {DEDUPE_BYTES_MIN} for each of'
        yield Finding((size, threads), f"{what} {threads.name}, which makes {least}")
    load = broker.LOG_CLEANER_IO_BUFFER_LOAD_FACTOR
    if not 0 < config[load] <= 1:
        yield Finding((load,), f'found "{config[load]}", valid: more than 0 and at most 1')
    least_in_sync, replicas = broker.MIN_INSYNC_REPLICAS, broker.DEFAULT_REPLICATION_FACTOR
    if config[least_in_sync] > config[replicas]:
        what = f"{config[least_in_sync]} replicas in sync are never reached by a new topic's"
        what = f"{what} {config[replicas]} ({replicas.name}): acks=all fails on it"
        yield Finding((least_in_sync, replicas), what, only_warn=True)


def _authorizer(config: Config) -> Iterator[Finding]:
    if config[broker.AUTHORIZER_CLASS_NAME]:
        return
    for setting in (broker.SUPER_USERS, broker.ALLOW_EVERYONE_IF_NO_ACL_FOUND):
        if config.is_set(setting):
            what = (
                f"everyone may do everything, because {broker.AUTHORIZER_CLASS_NAME.name} is empty"
            )
            yield Finding((setting, broker.AUTHORIZER_CLASS_NAME), what, only_warn=True)


LISTENERS_MAX: Final = 100

_LISTENER_SETTINGS: Final = (
    broker.LISTENERS,
    broker.LISTENER_SECURITY_PROTOCOL_MAP,
    broker.CONTROLLER_LISTENER_NAMES,
)


def _listeners(config: Config) -> Iterator[Finding]:
    """Everything about listeners; one that cannot be read hides what rests on it."""
    try:
        protocols(config)
    except BadValue as bad:
        what = f"found {quoted(config[broker.LISTENER_SECURITY_PROTOCOL_MAP])} ({bad.note})"
        valid = broker.LISTENER_SECURITY_PROTOCOL_MAP.range_text
        yield Finding((broker.LISTENER_SECURITY_PROTOCOL_MAP,), f"{what}, valid: {valid}")
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
        what = (
            f"no listener is left for the broker: {broker.CONTROLLER_LISTENER_NAMES.name} has all"
        )
        yield Finding(_LISTENER_SETTINGS, what)
        return
    yield from _distinct(opened)
    yield from _advertised(config, opened, advertised)
    yield from _between_brokers(config, opened)
    yield from _listeners_own(config, opened)
    for endpoint in opened:
        yield from _secured(config.listener(endpoint.name), endpoint)


def _named_hosts(config: Config) -> Iterator[Finding]:
    for host in connections_by_address(config):
        if usual_address(host) is None:
            what = f"{quoted(host)} limits nobody: give an address, for names are not looked up"
            yield Finding((broker.MAX_CONNECTIONS_PER_IP_OVERRIDES,), what, only_warn=True)


def _unreadable(config: Config, setting: Setting[Any], bad: BadValue) -> Finding:
    what = f"found {quoted(config.text(setting) or '')} ({bad.note}), valid: name://host:port,..."
    return Finding((setting, *_LISTENER_SETTINGS), what)


def _distinct(opened: tuple[Endpoint, ...]) -> Iterator[Finding]:
    if len(opened) > LISTENERS_MAX:
        what = f"{len(opened)} listeners are more than {LISTENERS_MAX}"
        yield Finding(_LISTENER_SETTINGS, what)
        return
    for at, endpoint in enumerate(opened):
        for other in opened[:at]:
            if endpoint.name == other.name:
                yield Finding(_LISTENER_SETTINGS, f"the name {endpoint.name} stands there twice")
            elif endpoint.port == other.port != 0 and _overlap(endpoint.host, other.host):
                what = f"{other} and {endpoint} cannot listen on the same port"
                yield Finding(_LISTENER_SETTINGS, what)


def _overlap(one: str, other: str) -> bool:
    """Whether two hosts can mean one interface. An IPv4 and an IPv6 address never do."""
    if one == other or "" in (one, other):
        return True
    if (":" in one) != (":" in other):
        return False
    return one in ("0.0.0.0", "::") or other in ("0.0.0.0", "::")


def _advertised(
    config: Config, opened: tuple[Endpoint, ...], advertised: tuple[Endpoint, ...]
) -> Iterator[Finding]:
    told = config[broker.ADVERTISED_LISTENERS] is not None
    subject = broker.ADVERTISED_LISTENERS if told else broker.LISTENERS
    involved = (subject, broker.ADVERTISED_LISTENERS, *_LISTENER_SETTINGS)
    names = {endpoint.name for endpoint in opened}
    for endpoint in advertised:
        if endpoint.name not in names:
            yield Finding(involved, f"{endpoint.name} is not one of {broker.LISTENERS.name}")
        if endpoint.host in ("0.0.0.0", "::"):
            what = f"{endpoint} is an address nobody can connect to; set advertised.listeners to"
            yield Finding(involved, f"{what} the name or address by which others reach this broker")


def _between_brokers(config: Config, opened: tuple[Endpoint, ...]) -> Iterator[Finding]:
    name, protocol = broker.INTER_BROKER_LISTENER_NAME, broker.SECURITY_INTER_BROKER_PROTOCOL
    involved = (name, protocol, *_LISTENER_SETTINGS)
    if config.is_set(name) and config.is_set(protocol):
        yield Finding(involved, f"set together with {protocol.name}; give only one of them")
        return
    listener = inter_broker_listener(config)
    if listener is None:
        names = ", ".join(endpoint.name for endpoint in opened)
        what = f"no listener is for the brokers themselves, valid: one of [{names}]"
        yield Finding(involved, what)
        return
    mechanism = inter_broker_mechanism(config, listener.name)
    enabled = config.listener(listener.name)[broker.SASL_ENABLED_MECHANISMS]
    if listener.sasl and enabled and mechanism not in enabled:
        found = f'found "{mechanism}"' if mechanism else "not set"
        what = f"{found}, valid: one that {broker.SASL_ENABLED_MECHANISMS.name} has"
        settings = (broker.SASL_MECHANISM_INTER_BROKER_PROTOCOL, broker.SASL_ENABLED_MECHANISMS)
        yield Finding((*settings, *involved), f"{what}: [{', '.join(enabled)}]")


def _listeners_own(config: Config, opened: tuple[Endpoint, ...]) -> Iterator[Finding]:
    """Settings of a listener that is not there would be ignored in silence."""
    controllers = config[broker.CONTROLLER_LISTENER_NAMES]
    known = {endpoint.name for endpoint in opened} | {name.upper() for name in controllers}
    for name in config.given:
        parts = split_listener_name(name, security.MECHANISMS)
        if parts and parts.listener.upper() not in known:
            names = ", ".join(sorted(each.lower() for each in known))
            what = f"there is no listener {quoted(parts.listener)}, valid: one of [{names}]"
            yield Finding(_LISTENER_SETTINGS, what, name=name)


def _secured(own: Config, endpoint: Endpoint) -> Iterator[Finding]:
    key, location = security.SSL_KEYSTORE_KEY, security.SSL_KEYSTORE_LOCATION
    if endpoint.tls and own[key] is None and own[location] is None:
        what = f"{endpoint.name} speaks {endpoint.protocol} and needs {location.name} or {key.name}"
        yield Finding((broker.LISTENERS, location, key, *_LISTENER_SETTINGS), what)
    mechanisms = broker.SASL_ENABLED_MECHANISMS
    if endpoint.sasl and not own[mechanisms]:
        what = f"{endpoint.name} speaks {endpoint.protocol} and needs {mechanisms.name}"
        yield Finding((broker.LISTENERS, mechanisms, *_LISTENER_SETTINGS), what)
    yield from _stores(own)


def _stores(config: Config) -> Iterator[Finding]:
    """A key and its certificate come both as text or both from one file; trust likewise."""
    key, chain = security.SSL_KEYSTORE_KEY, security.SSL_KEYSTORE_CERTIFICATE_CHAIN
    location = security.SSL_KEYSTORE_LOCATION
    for one, other in ((key, chain), (chain, key)):
        if config[one] is not None and config[other] is None:
            yield Finding((one, other), f"set without {other.name}, which belongs to it")
    if config[key] is not None and config[location] is not None:
        yield Finding((key, location), f"set together with {location.name}; give only one of them")
    trusted, file = security.SSL_TRUSTSTORE_CERTIFICATES, security.SSL_TRUSTSTORE_LOCATION
    if config[trusted] is not None and config[file] is not None:
        yield Finding((trusted, file), f"set together with {file.name}; give only one of them")


def _topic(config: Config) -> Iterator[Finding]:
    yield from _in_order(config, topic.MIN_COMPACTION_LAG_MS, topic.MAX_COMPACTION_LAG_MS)


def _login(config: Config) -> Iterator[Finding]:
    for settings, what in login_problems(config):
        yield Finding(settings, what)


def _idempotence(config: Config) -> Iterator[Finding]:
    wanted, transactions = producer.ENABLE_IDEMPOTENCE, producer.TRANSACTIONAL_ID
    hindrance = idempotence_hindrance(config)
    if config[wanted] and hindrance is not None:
        in_its_way = f"{hindrance.name} is {config.text(hindrance)}"
        needed = config.is_set(wanted) or config[transactions] is not None
        what = f"not possible when {in_its_way}" if needed else f"off, because {in_its_way}"
        yield Finding((wanted, hindrance, transactions), what, only_warn=not needed)
    if not config[wanted] and config[transactions] is not None:
        what = f'found "false", valid: true, because {transactions.name} is set'
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
            what = (
                f'found "{config[total]}", valid: at least {wait.name} and {request.name} together,'
            )
            yield Finding((total, wait, request), f"{what} which is {least_ms}")
        else:
            what = f"raised to {least_ms}, which is {wait.name} and {request.name} together"
            yield Finding((total, wait, request), what, only_warn=True)
    two_phase, limit = producer.TRANSACTION_TWO_PHASE_COMMIT_ENABLE, producer.TRANSACTION_TIMEOUT_MS
    if config[two_phase] and config.is_set(limit):
        what = f"set together with {two_phase.name}, whose transactions have no time limit"
        yield Finding((limit, two_phase), what)


def _consumer(config: Config) -> Iterator[Finding]:
    heartbeat, session = consumer.HEARTBEAT_INTERVAL_MS, consumer.SESSION_TIMEOUT_MS
    protocol = consumer.GROUP_PROTOCOL
    if config[protocol] == "consumer":
        for setting in (heartbeat, session, consumer.PARTITION_ASSIGNMENT_STRATEGY):
            if config.is_set(setting):
                what = f"the broker decides it when {protocol.name} is consumer; leave it out"
                yield Finding((setting, protocol), what)
    else:
        yield from _in_order(config, heartbeat, session, strict=True)
        if config[consumer.GROUP_REMOTE_ASSIGNOR] is not None:
            what = f"only for {protocol.name}=consumer"
            yield Finding((consumer.GROUP_REMOTE_ASSIGNOR, protocol), what)
    commits = consumer.ENABLE_AUTO_COMMIT
    if config[consumer.GROUP_ID] is None and config.is_set(commits) and config[commits]:
        what = f'found "true", valid: false, because {consumer.GROUP_ID.name} is not set'
        yield Finding((commits, consumer.GROUP_ID), what)


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


def findings(config: Config) -> Iterator[Finding]:
    """Everything that does not go together in a configuration."""
    for check in CHECKS[config.table.scope]:
        yield from check(config)
