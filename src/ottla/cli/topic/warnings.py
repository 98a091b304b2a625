"""Warnings about creating or growing a topic.

A warning prevents nothing.
"""

from typing import Final

KEYS_MOVE: Final = (
    "more partitions change the partition of keys: records of a key are no longer in order across "
    "the change"
)


def can_collide(name: str) -> bool:
    """Whether metrics may confuse the topic with another: they do not distinguish `.` and `_`."""
    return "." in name or "_" in name


def name_warning(name: str) -> str | None:
    """Return the warning about a name that has both characters.

    Kafka's tool warns about every name with one of them. A name that collides with an existing one
    is refused by the broker.
    """
    if "." not in name or "_" not in name:
        return None
    return (
        f"{name} has '.' and '_': metric names do not distinguish them, so topics that differ only "
        "in them collide; use one of the two in all names"
    )
