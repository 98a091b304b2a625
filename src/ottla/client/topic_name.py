"""Checks topic names.

Invariant: an invalid name never gets into a request, where it would fail all topics. Which valid
names a cluster accepts is decided by the cluster.
"""

from ottla.errors import ErrorCode, RequestError


def checked_name(topic: object) -> str:
    """Return the name; raises TypeError for a non-str and RequestError for an invalid name."""
    if not isinstance(topic, str):
        raise TypeError(f"a topic is named by a str, and not by {topic!r}")
    if not topic or not topic.isascii():
        raise RequestError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{topic!r} is no name of a topic: letters, digits, '.', '_' and '-' make one",
        )
    return topic
