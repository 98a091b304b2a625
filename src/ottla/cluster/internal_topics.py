"""The configs and partitions of internal topics, so that no committed offset is lost.

Invariant: a change that gives an internal topic a config outside of these tables is refused before
anything is stored. A value that the topic has already may stay. Nothing here changes state.
"""

from collections.abc import Callable, Container, Mapping
from typing import Final, NamedTuple

from ottla.errors import ErrorCode, RequestError
from ottla.settings import broker, topic
from ottla.settings.config import Config
from ottla.settings.config_def import Setting
from ottla.settings.config_parser import topic_overrides

SEGMENT_BYTES_MIN: Final = 1_048_576  # of a topic; the broker's setting may be lower


def _segment_bytes(setting: Setting[int]) -> Callable[[Config], str]:
    return lambda config: str(max(config[setting], SEGMENT_BYTES_MIN))


_REQUIRED: Final[Mapping[str, Mapping[str, Callable[[Config], str]]]] = {
    "__consumer_offsets": {
        "cleanup.policy": lambda _: "compact",
        "compression.type": lambda _: "producer",
        "segment.bytes": _segment_bytes(broker.OFFSETS_TOPIC_SEGMENT_BYTES),
    },
    "__transaction_state": {
        "cleanup.policy": lambda _: "compact",
        "compression.type": lambda _: "uncompressed",
        "segment.bytes": _segment_bytes(broker.TRANSACTION_STATE_LOG_SEGMENT_BYTES),
    },
}
"""The values that each internal topic must have, by the broker's config."""


_PARTITIONS: Final[Mapping[str, Setting[int]]] = {
    "__consumer_offsets": broker.OFFSETS_TOPIC_NUM_PARTITIONS,
    "__transaction_state": broker.TRANSACTION_STATE_LOG_NUM_PARTITIONS,
}
"""The settings that decide how many partitions an internal topic has."""


class _Limit(NamedTuple):
    """The allowed values of a config that is optional."""

    setting: Setting[int]
    allows: Callable[[int, int], bool]  # by the value and the replication factor
    requirement: str


_MESSAGE_BYTES_MIN: Final = 1_048_588  # Kafka's default


def _fits_records(message_bytes: int, replication_factor: int) -> bool:
    return message_bytes >= _MESSAGE_BYTES_MIN


def _is_reachable(in_sync_min: int, replication_factor: int) -> bool:
    return in_sync_min <= replication_factor


_LIMITS: Final = (
    _Limit(
        topic.MAX_MESSAGE_BYTES,
        _fits_records,
        f"at least {_MESSAGE_BYTES_MIN}, so that the records of a coordinator fit",
    ),
    _Limit(
        topic.MIN_INSYNC_REPLICAS,
        _is_reachable,
        "at most the replication factor, so that a coordinator can write",
    ),
)


def required_config(name: str, config: Config) -> dict[str, str]:
    """Return the configs that an internal topic must have; none for other topics.

    With other configs, retention could delete committed offsets.
    """
    return {key: value(config) for key, value in _REQUIRED.get(name, {}).items()}


def internal_partitions(name: str, asked: int, config: Config) -> int | None:
    """Return how many partitions a new internal topic gets; None for other topics.

    `asked` is the number that a client asks for, or -1 for the default. Only the operator decides
    it: the topic cannot be deleted, so a client could use up the partitions of a broker for good.
    """
    setting = _PARTITIONS.get(name)
    if setting is None:
        return None
    count = config[setting]
    if asked not in (-1, count):
        raise _refusal(
            name, f"it must have {count} partitions ({setting.name}), but would have {asked}"
        )
    return count


def reserved_partitions(topics: Container[str], config: Config) -> int:
    """Return how many partitions of a broker other topics must leave to __consumer_offsets.

    Without them no group could commit.
    """
    return 0 if "__consumer_offsets" in topics else config[broker.OFFSETS_TOPIC_NUM_PARTITIONS]


def check_internal_config(
    name: str,
    before: Mapping[str, str],
    after: Mapping[str, str],
    *,
    required: Mapping[str, str],
    replication_factor: int,
) -> None:
    """Refuse configs with which an internal topic could lose records; allow them for others.

    `required` is the result of required_config. All values must be valid.
    """
    if name not in _REQUIRED:
        return
    old, new, needed = (topic_overrides(one) for one in (before, after, required))
    for key, value in required.items():
        given = new.given.get(key)
        if given not in (old.given.get(key), needed.given[key]):
            wrong = "unset" if given is None else after[key]
            raise _refusal(name, f"{key} must be {value}, but would be {wrong}")
    for limit in _LIMITS:
        given = new.given.get(limit.setting.name)
        if given == old.given.get(limit.setting.name):
            continue
        value = new[limit.setting]
        if given is not None and not limit.allows(value, replication_factor):
            raise _refusal(
                name, f"{limit.setting.name} must be {limit.requirement}, but would be {value}"
            )


def _refusal(name: str, problem: str) -> RequestError:
    return RequestError(ErrorCode.POLICY_VIOLATION, f"{name} is an internal topic: {problem}.")
