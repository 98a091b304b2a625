"""Producer config from its settings.

It converts the milliseconds of the settings to seconds.
"""

from collections.abc import Callable
from typing import Final

from ottla.client.network.config import retry_backoff
from ottla.client.producer.delivery import SenderConfig
from ottla.client.producer.record_accumulator import AccumulatorConfig
from ottla.client.producer.transactions import TransactionConfig
from ottla.records import Compression
from ottla.settings import compression, connection, producer
from ottla.settings.config import Config
from ottla.settings.derived import delivery_timeout_ms, idempotence

ACKS: Final = {"all": -1, "1": 1, "0": 0}


def accumulator_config(config: Config) -> AccumulatorConfig:
    """Return how records are batched."""
    return AccumulatorConfig(
        # A record too large for a request does not fit an open batch, and one that opens a batch is
        # measured. So no too large record passes.
        batch_bytes=min(
            config[producer.BATCH_SIZE],
            config[producer.MAX_REQUEST_SIZE],
            config[producer.BUFFER_MEMORY],
        ),
        memory_bytes=config[producer.BUFFER_MEMORY],
        compression=Compression[config[producer.COMPRESSION_TYPE].upper()],
        level=_level(config),
    )


def _level(config: Config) -> int | None:
    """Return the compression level of the codec, if configured."""
    for setting in compression.LEVELS:
        _, codec, _ = setting.name.split(".")
        if codec == config[producer.COMPRESSION_TYPE] and config.is_set(setting):
            return config[setting]
    return None


def transaction_config(config: Config, random: Callable[[], float]) -> TransactionConfig | None:
    """Return the transaction config; None without transactions."""
    transactional_id = config[producer.TRANSACTIONAL_ID]
    if transactional_id is None:
        return None
    return TransactionConfig(
        transactional_id=transactional_id,
        timeout_ms=config[producer.TRANSACTION_TIMEOUT_MS],
        block_s=config[producer.MAX_BLOCK_MS] / 1000,
        request_timeout_s=config[connection.REQUEST_TIMEOUT_MS] / 1000,
        backoff=retry_backoff(config, random),
        is_two_phase=config[producer.TRANSACTION_TWO_PHASE_COMMIT_ENABLE],
    )


def sender_config(config: Config, random: Callable[[], float]) -> SenderConfig:
    """Return the delivery config."""
    return SenderConfig(
        acks=ACKS[config[producer.ACKS]],
        is_idempotent=idempotence(config),
        is_transactional=config[producer.TRANSACTIONAL_ID] is not None,
        linger_s=config[producer.LINGER_MS] / 1000,
        in_flight_max=config[producer.MAX_IN_FLIGHT_REQUESTS_PER_CONNECTION],
        request_bytes_max=config[producer.MAX_REQUEST_SIZE],
        request_timeout_s=config[connection.REQUEST_TIMEOUT_MS] / 1000,
        delivery_timeout_s=delivery_timeout_ms(config) / 1000,
        retries=config[connection.RETRIES],
        backoff=retry_backoff(config, random),
    )
