"""The way from the topics that there are to those that there are to be.

Invariant: a plan takes nothing away unless it was told to: a setting that is not named stays, a
topic that is not named stays, partitions never become fewer. What cannot be done is in the plan,
with the reason.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from ottla.cli.output import Json
from ottla.cli.topic.file import WantedTopic
from ottla.ids import topic_names_collide

CONFIG = "configs."
"""Before the name of a setting, where it stands among other facts of a topic."""


class Action(StrEnum):
    """What becomes of a topic."""

    CREATE = "create"
    CHANGE = "change"
    DELETE = "delete"
    KEEP = "keep"


@dataclass(frozen=True, slots=True)
class PresentTopic:
    """A topic as it is, with the settings that are its own."""

    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Change:
    """A fact of a topic that changes; None stands for none of its own."""

    what: str
    before: str | int | None
    after: str | int | None
    obstacle: str | None = None
    """Why it cannot be."""

    def object(self) -> dict[str, Json]:
        """As programs get it."""
        return {
            "what": self.what,
            "before": self.before,
            "after": self.after,
            "obstacle": self.obstacle,
        }


@dataclass(frozen=True, slots=True)
class Step:
    """What becomes of one topic."""

    topic: str
    action: Action
    changes: tuple[Change, ...] = ()
    obstacle: str | None = None
    """Why nothing can become of it."""

    @property
    def is_possible(self) -> bool:
        """Whether nothing is in the way."""
        return self.obstacle is None and all(one.obstacle is None for one in self.changes)

    def obstacles(self) -> Iterable[str]:
        """What is in the way."""
        for one in (self.obstacle, *(one.obstacle for one in self.changes)):
            if one is not None:
                yield one

    @property
    def partitions(self) -> int | None:
        """How many there are to be, if that changes."""
        found = [one.after for one in self.changes if one.what == "partitions"]
        return int(found[0]) if found and found[0] is not None else None

    @property
    def replication_factor(self) -> int | None:
        """How many replicas there are to be, if that changes."""
        found = [one.after for one in self.changes if one.what == "replication_factor"]
        return int(found[0]) if found and found[0] is not None else None

    def configs(self) -> dict[str, str | None]:
        """The settings that change; None unsets."""
        return {
            one.what.removeprefix(CONFIG): None if one.after is None else str(one.after)
            for one in self.changes
            if one.what.startswith(CONFIG)
        }

    def object(self) -> dict[str, Json]:
        """As programs get it."""
        return {
            "topic": self.topic,
            "action": self.action.value,
            "changes": [one.object() for one in self.changes],
            "obstacle": self.obstacle,
        }


def plan(
    wanted: Iterable[WantedTopic],
    present: Mapping[str, PresentTopic],
    *,
    unset_others: bool = False,
    delete_others: bool = False,
) -> list[Step]:
    """A step for each topic that is wanted, in their order; then those that go."""
    topics = [*wanted]
    steps = [_step(one, present.get(one.name), unset_others=unset_others) for one in topics]
    if delete_others:
        named = {one.name for one in topics}
        steps += [Step(name, Action.DELETE) for name in sorted(present) if name not in named]
    return steps


def _step(wanted: WantedTopic, present: PresentTopic | None, *, unset_others: bool) -> Step:
    if present is None:
        changes = (
            *(
                Change(what, None, number)
                for what, number in (
                    ("partitions", wanted.partitions),
                    ("replication_factor", wanted.replication_factor),
                )
                if number is not None
            ),
            *(
                Change(CONFIG + name, None, value)
                for name, value in wanted.configs.items()
                if value is not None
            ),
        )
        return Step(wanted.name, Action.CREATE, changes)
    changes = (
        *_more_partitions(wanted, present),
        *_other_factor(wanted, present),
        *_other_configs(wanted, present, unset_others=unset_others),
    )
    return Step(wanted.name, Action.CHANGE if changes else Action.KEEP, changes)


def _more_partitions(wanted: WantedTopic, present: PresentTopic) -> Iterable[Change]:
    if wanted.partitions not in (None, present.partitions):
        fewer = wanted.partitions < present.partitions
        yield Change(
            "partitions",
            present.partitions,
            wanted.partitions,
            "the partition count cannot be reduced" if fewer else None,
        )


def _other_factor(wanted: WantedTopic, present: PresentTopic) -> Iterable[Change]:
    if wanted.replication_factor not in (None, present.replication_factor):
        yield Change(
            "replication_factor",
            present.replication_factor,
            wanted.replication_factor,
            "changing the replication factor requires a reassignment",
        )


def _other_configs(
    wanted: WantedTopic, present: PresentTopic, *, unset_others: bool
) -> Iterable[Change]:
    for name, value in wanted.configs.items():
        before = present.configs.get(name)
        if before != value:
            yield Change(CONFIG + name, before, value)
    if unset_others:
        for name, before in present.configs.items():
            if name not in wanted.configs:
                yield Change(CONFIG + name, before, None)


def obstructed(steps: Iterable[Step], obstacles: Mapping[str, str]) -> list[Step]:
    """The steps, with what a cluster says against those of some topics."""
    return [
        replace(one, obstacle=obstacles[one.topic]) if one.topic in obstacles else one
        for one in steps
    ]


def collisions(steps: Iterable[Step], there: Iterable[str]) -> dict[str, str]:
    """What is against making some topics: a cluster has no two whose names differ in . and _ alone.

    `there` are all topics that there are. Of two that are to be made it is the later one that
    cannot be. A cluster that is asked about each alone does not know of the other.
    """
    taken = {_in_metrics(name): name for name in there}
    found: dict[str, str] = {}
    for one in steps:
        if one.action is Action.CREATE:
            first = taken.setdefault(_in_metrics(one.topic), one.topic)
            if topic_names_collide(first, one.topic):
                found[one.topic] = f"its name differs from that of {first} only in . and _"
    return found


def _in_metrics(name: str) -> str:
    """A name as metrics have it, where such topics could not be told apart."""
    return name.replace(".", "_")


def lines(steps: Iterable[Step]) -> list[str]:
    """The plan for people: `+` is made, `~` changed, `-` deleted, and `!` cannot be."""
    found: list[str] = []
    kept = 0
    for step in steps:
        if step.action is Action.KEEP and step.is_possible:
            kept += 1
            continue
        sign = _SIGNS[step.action] if step.is_possible else "!"
        found.append(f"{sign} {step.topic}: {_WORDS[step.action]}")
        if step.obstacle is not None:
            found.append(f"    not possible: {step.obstacle}")
        found += [f"    {_change(one, step.action)}" for one in step.changes]
    if kept:
        found.append(f"= {kept} {'topic is' if kept == 1 else 'topics are'} unchanged")
    return found


_SIGNS = {Action.CREATE: "+", Action.CHANGE: "~", Action.DELETE: "-", Action.KEEP: "="}
_WORDS = {
    Action.CREATE: "to be created",
    Action.CHANGE: "to be changed",
    Action.DELETE: "to be deleted with all its records",
    Action.KEEP: "unchanged",
}


def _change(one: Change, action: Action) -> str:
    what = one.what.removeprefix(CONFIG).replace("replication_factor", "replication factor")
    if action is Action.CREATE:
        said = f"{what}: {one.after}"
    else:
        before = "(not set)" if one.before is None else one.before
        after = "(not set)" if one.after is None else one.after
        said = f"{what}: {before} -> {after}"
    return said if one.obstacle is None else f"{said}   not possible: {one.obstacle}"
