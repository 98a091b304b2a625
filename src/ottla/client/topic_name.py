"""The name of a topic, as somebody gave it.

Invariant: what is no name never comes into a request, which would fail for all topics in it.
Which names a cluster allows is its own affair, but for those that none does.
"""

from ottla.errors import ErrorCode, RequestError


def checked_name(topic: object) -> str:
    """The name; TypeError for what is no str, RequestError for what is no name anywhere."""
    if not isinstance(topic, str):
        raise TypeError(f"a topic is named by a str, and not by {topic!r}")
    if not topic or not topic.isascii():
        raise RequestError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{topic!r} is no name of a topic: letters, digits, '.', '_' and '-' make one",
        )
    return topic
