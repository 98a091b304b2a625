"""Messages of Kafka's tools for an error: the broker's message, or Kafka's default for the code.

Invariant: the prefix and the advice that Ottla's client adds are removed.
"""

from typing import Final

from ottla.errors import ErrorCode, OttlaError, RequestError

_SILENT: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.TOPIC_ALREADY_EXISTS: "Topic with this name already exists.",
    ErrorCode.INVALID_PARTITIONS: "Number of partitions is below 1.",
    ErrorCode.INVALID_CONFIG: "Configuration is invalid.",
    ErrorCode.TOPIC_DELETION_DISABLED: "Topic deletion is disabled.",
}


def words(error: OttlaError, about: object = None) -> str:
    """Return the message; `about` is the prefix that Ottla's client puts before it."""
    if not isinstance(error, RequestError):
        return str(error)
    message = error.message or error.code.text
    if about is not None:
        message = message.removeprefix(f"{about}: ")
    if message == error.code.text:
        return _SILENT.get(error.code, message)
    return message
