"""Plans the changes from present topics to wanted ones.

Invariant: a plan removes nothing unless told to: settings and topics that are not named stay, and
partition counts never decrease. What is not possible is in the plan with the reason.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from ottla.cli.output import Json
from ottla.cli.topic.file import WantedTopic
from ottla.ids import topic_names_collide

CONFIG = "configs."
"""Prefix of setting names among other properties of a topic."""


class Action(StrEnum):
    """What happens to a topic."""

    CREATE = "create"
    CHANGE = "change"
    DELETE = "delete"
    KEEP = "keep"


@dataclass(frozen=True, slots=True)
class PresentTopic:
    """A present topic with its own settings."""

    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Change:
    """A property that changes; None for not set."""

    what: str
    before: str | int | None
    after: str | int | None
    obstacle: str | None = None
    """Why it is not possible."""

    def object(self) -> dict[str, Json]:
        """Return it as an object."""
        return {
            "what": self.what,
            "before": self.before,
            "after": self.after,
            "obstacle": self.obstacle,
        }


@dataclass(frozen=True, slots=True)
class Step:
    """What happens to one topic."""

    topic: str
    action: Action
    changes: tuple[Change, ...] = ()
    obstacle: str | None = None
    """Why the step is not possible."""

    @property
    def is_possible(self) -> bool:
        """Whether there is no obstacle."""
        return self.obstacle is None and all(one.obstacle is None for one in self.changes)

    def obstacles(self) -> Iterable[str]:
        """The obstacles."""
        for one in (self.obstacle, *(one.obstacle for one in self.changes)):
            if one is not None:
                yield one

    @property
    def partitions(self) -> int | None:
        """The new partition count, if it changes."""
        found = [one.after for one in self.changes if one.what == "partitions"]
        return int(found[0]) if found and found[0] is not None else None

    @property
    def replication_factor(self) -> int | None:
        """The new replication factor, if it changes."""
        found = [one.after for one in self.changes if one.what == "replication_factor"]
        return int(found[0]) if found and found[0] is not None else None

    def configs(self) -> dict[str, str | None]:
        """The settings that change; None removes one."""
        return {
            one.what.removeprefix(CONFIG): None if one.after is None else str(one.after)
            for one in self.changes
            if one.what.startswith(CONFIG)
        }

    def object(self) -> dict[str, Json]:
        """Return it as an object."""
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
    """Return a step per wanted topic, in order, then the deletions."""
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
    """Return the steps with the cluster's objections."""
    return [
        replace(one, obstacle=obstacles[one.topic]) if one.topic in obstacles else one
        for one in steps
    ]


def collisions(steps: Iterable[Step], there: Iterable[str]) -> dict[str, str]:
    """Return the topics that cannot be created because their names collide in . and _.

    `there` are all existing topics. Of two new topics the later one is refused: the cluster, asked
    about each alone, would not notice.
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
    """Return a name as in metrics, where . and _ are the same."""
    return name.replace(".", "_")


def lines(steps: Iterable[Step]) -> list[str]:
    """Return the plan as lines: `+` create, `~` change, `-` delete, `!` not possible."""
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
