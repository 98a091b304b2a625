"""What people should know before they make or grow a topic, and what Kafka's tool says of it.

Invariant: a warning hinders nothing.
"""

from typing import Final

KEYS_MOVE: Final = (
    "more partitions change the partition of keys: records of a key are no longer in order across "
    "the change"
)


def can_collide(name: str) -> bool:
    """Whether metrics may mistake the topic for another: they take `.` and `_` for the same."""
    return "." in name or "_" in name


def name_warning(name: str) -> str | None:
    """What there is to say about a name."""
    if not can_collide(name):
        return None
    return (
        f"{name}: metric names do not distinguish '.' and '_', so topics that differ only in them "
        "collide; use one of the two in all names"
    )
