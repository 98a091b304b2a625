"""Plan of the changes from present topics to wanted ones."""

import pytest

from ottla.cli.topic.file import WantedTopic
from ottla.cli.topic.plan import (
    Action,
    Change,
    PresentTopic,
    Step,
    collisions,
    lines,
    obstructed,
    plan,
)

PRESENT = {
    "kept": PresentTopic("kept", 3, 1, {"retention.ms": "1", "segment.ms": "5"}),
    "other": PresentTopic("other", 1, 1, {}),
}


def test_missing_topic_is_created() -> None:
    wanted = WantedTopic("new", 3, None, {"retention.ms": "1", "segment.ms": None})
    (step,) = plan([wanted], PRESENT)
    assert step == Step(
        "new",
        Action.CREATE,
        (Change("partitions", None, 3), Change("configs.retention.ms", None, "1")),
    )
    assert (step.partitions, step.replication_factor) == (3, None)
    assert step.configs() == {"retention.ms": "1"}
    assert plan([WantedTopic("new")], {}) == [Step("new", Action.CREATE)]


@pytest.mark.parametrize(
    "wanted",
    [
        WantedTopic("kept"),
        WantedTopic("kept", 3, 1, {"retention.ms": "1"}),
        WantedTopic("kept", configs={"cleanup.policy": None}),
    ],
)
def test_unchanged_topic_is_kept(wanted: WantedTopic) -> None:
    assert plan([wanted], PRESENT) == [Step("kept", Action.KEEP)]


def test_only_differences_are_changed() -> None:
    wanted = WantedTopic("kept", 5, 1, {"retention.ms": "2", "cleanup.policy": "compact"})
    (step,) = plan([wanted], PRESENT)
    assert step.action is Action.CHANGE
    assert step.is_possible
    assert step.changes == (
        Change("partitions", 3, 5),
        Change("configs.retention.ms", "1", "2"),
        Change("configs.cleanup.policy", None, "compact"),
    )
    assert step.configs() == {"retention.ms": "2", "cleanup.policy": "compact"}


def test_setting_is_unset_on_request() -> None:
    (named,) = plan([WantedTopic("kept", configs={"retention.ms": None})], PRESENT)
    assert named.configs() == {"retention.ms": None}
    (others,) = plan(
        [WantedTopic("kept", configs={"retention.ms": "1"})], PRESENT, unset_others=True
    )
    assert others.configs() == {"segment.ms": None}


def test_topics_are_deleted_only_on_request() -> None:
    assert plan([], PRESENT) == []
    assert plan([WantedTopic("kept")], PRESENT, delete_others=True) == [
        Step("kept", Action.KEEP),
        Step("other", Action.DELETE),
    ]


def test_impossible_changes_are_in_the_plan() -> None:
    (step,) = plan([WantedTopic("kept", 2, 3, {"retention.ms": "2"})], PRESENT)
    assert not step.is_possible
    assert [one.what for one in step.changes if one.obstacle] == [
        "partitions",
        "replication_factor",
    ]
    assert len([*step.obstacles()]) == 2
    steps = obstructed(plan([WantedTopic("new"), WantedTopic("kept")], PRESENT), {"new": "no"})
    assert [one.is_possible for one in steps] == [False, True]
    assert [*steps[0].obstacles()] == ["no"]


def test_names_that_differ_only_in_dots_collide() -> None:
    present = {"kept_x": PresentTopic("kept_x", 1, 1, {})}
    names = ["a.c", "a_c", "ac", "kept_x", "kept.x", "other.x", "a-c"]
    steps = plan([WantedTopic(name) for name in names], present)
    found = collisions(steps, ["kept_x", "other_x", "more.x"])
    assert found == {
        "a_c": "its name differs from that of a.c only in . and _",
        "kept.x": "its name differs from that of kept_x only in . and _",
        "other.x": "its name differs from that of other_x only in . and _",
    }


def test_existing_topics_do_not_collide() -> None:
    """Existing topics may have colliding names."""
    present = {name: PresentTopic(name, 1, 1, {}) for name in ("a.c", "a_c")}
    wanted = [WantedTopic("a.c", 2), WantedTopic("a_c")]
    assert collisions(plan(wanted, present), present) == {}


def test_plan_is_printed_per_topic() -> None:
    wanted = [
        WantedTopic("new", 3, 1, {"retention.ms": "1"}),
        WantedTopic("kept", 5, configs={"retention.ms": None, "x": "1"}),
        WantedTopic("same"),
        WantedTopic("less", 1),
    ]
    present = {
        **PRESENT,
        "same": PresentTopic("same", 1, 1, {}),
        "less": PresentTopic("less", 2, 1, {}),
    }
    steps = obstructed(plan(wanted, present, delete_others=True), {"other": "not now"})
    assert lines(steps) == [
        "+ new: to be created",
        "    partitions: 3",
        "    replication factor: 1",
        "    retention.ms: 1",
        "~ kept: to be changed",
        "    partitions: 3 -> 5",
        "    retention.ms: 1 -> (not set)",
        "    x: (not set) -> 1",
        "! less: to be changed",
        "    partitions: 2 -> 1   not possible: the partition count cannot be reduced",
        "! other: to be deleted with all its records",
        "    not possible: not now",
        "= 1 topic is unchanged",
    ]
    assert steps[1].object() == {
        "topic": "kept",
        "action": "change",
        "changes": [
            {"what": "partitions", "before": 3, "after": 5, "obstacle": None},
            {"what": "configs.retention.ms", "before": "1", "after": None, "obstacle": None},
            {"what": "configs.x", "before": None, "after": "1", "obstacle": None},
        ],
        "obstacle": None,
    }
