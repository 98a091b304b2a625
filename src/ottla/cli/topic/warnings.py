"""Warnings about creating or growing a topic, as Kafka's tool prints them.

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
    """Return the warning about a name."""
    if not can_collide(name):
        return None
    return (
        f"{name}: metric names do not distinguish '.' and '_', so topics that differ only in them "
        "collide; use one of the two in all names"
    )
