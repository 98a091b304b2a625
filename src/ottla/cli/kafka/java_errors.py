"""Errors as Kafka's Java tools print them, with the class of the exception.

Invariant: the broker's message is printed if there is one, otherwise that of Java's client for the
code.
"""

from typing import Final

from ottla.errors import ErrorCode, RequestError

PACKAGE: Final = "org.apache.kafka.common.errors."

# Classes whose name does not follow from that of the code, with their message.
_TOLD: Final = {
    ErrorCode.OFFSET_OUT_OF_RANGE: (
        "OffsetOutOfRange",
        "The requested offset is not within the range of offsets maintained by the server.",
    ),
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: (
        "UnknownTopicOrPartition",
        "This server does not host this topic-partition.",
    ),
    ErrorCode.LEADER_NOT_AVAILABLE: (
        "LeaderNotAvailable",
        (
            "There is no leader for this topic-partition as we are in the middle of a leadership "
            "election."
        ),
    ),
    ErrorCode.REQUEST_TIMED_OUT: ("Timeout", None),
    ErrorCode.NETWORK_EXCEPTION: ("Network", None),
    ErrorCode.COORDINATOR_NOT_AVAILABLE: (
        "CoordinatorNotAvailable",
        "The coordinator is not available.",
    ),
    ErrorCode.INVALID_TOPIC_EXCEPTION: (
        "InvalidTopic",
        "The request attempted to perform an operation on an invalid topic.",
    ),
    ErrorCode.INVALID_GROUP_ID: ("InvalidGroupId", "The configured groupId is invalid"),
    ErrorCode.UNKNOWN_MEMBER_ID: (
        "UnknownMemberId",
        "The coordinator is not aware of this member.",
    ),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: ("TopicAuthorization", "Topic authorization failed."),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: ("GroupAuthorization", "Group authorization failed."),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: (
        "ClusterAuthorization",
        "Cluster authorization failed.",
    ),
    ErrorCode.UNSUPPORTED_VERSION: ("UnsupportedVersion", None),
    ErrorCode.POLICY_VIOLATION: (
        "PolicyViolation",
        "Request parameters do not satisfy the configured policy.",
    ),
    ErrorCode.KAFKA_STORAGE_ERROR: (
        "KafkaStorage",
        "Disk error when trying to access log file on the disk.",
    ),
    ErrorCode.NON_EMPTY_GROUP: ("GroupNotEmpty", "The group is not empty."),
    ErrorCode.GROUP_ID_NOT_FOUND: ("GroupIdNotFound", "The group id does not exist."),
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: (
        "GroupSubscribedToTopic",
        (
            "Deleting offsets of a topic is forbidden while the consumer group is actively "
            "subscribed to it."
        ),
    ),
}


def class_name(code: ErrorCode) -> str:
    """Return the exception class that Java's client has for a code."""
    told = _TOLD.get(code)
    words = code.name.removesuffix("_EXCEPTION").split("_")
    stem = "".join(word.capitalize() for word in words) if told is None else told[0]
    return f"{PACKAGE}{stem}Exception"


def message(error: RequestError, about: object = None) -> str:
    """Return the message of the exception; `about` is the prefix that Ottla's client adds."""
    told = _TOLD.get(error.code)
    own = error.message or ""
    if about is not None:
        own = own.removeprefix(f"{about}: ")
    if told is not None and told[1] is not None and own in ("", error.code.text):
        return told[1]
    return own or error.code.text


def text(error: RequestError, about: object = None) -> str:
    """Return the exception as Java prints it."""
    return f"{class_name(error.code)}: {message(error, about)}"
