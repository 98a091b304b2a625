"""Finds the steps of a query that combine rows or keep state, in the plan that Spark has analysed.

A declaration shows this only for SQL and `deduplicate`: a Python step can do anything.

Invariant: nothing here starts a query or changes a plan.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame

_COMBINED: Final = {
    "Aggregate": "an aggregation",
    "Distinct": "an aggregation",
    "Join": "a join",
    "FlatMapGroupsInPandas": "a function of groups",
    "FlatMapGroupsInArrow": "a function of groups",
    "FlatMapCoGroupsInPandas": "a function of groups",
    "FlatMapCoGroupsInArrow": "a function of groups",
    "FlatMapGroupsWithState": "a function with state",
    "FlatMapGroupsInPandasWithState": "a function with state",
    "TransformWithState": "a function with state",
    "TransformWithStateInPySpark": "a function with state",
}
"""The operators after which a row is not made of one record, and what users call them."""

_WITH_STATE: Final = frozenset(
    {
        "Aggregate",
        "Deduplicate",
        "DeduplicateWithinWatermark",
        "Distinct",
        "FlatMapGroupsInPandasWithState",
        "FlatMapGroupsWithState",
        "GlobalLimit",
        "Join",
        "TransformWithState",
        "TransformWithStateInPySpark",
    }
)


class _Operator(NamedTuple):
    """An operator of a plan, and the source or step that has it."""

    name: str
    part: str
    has_state: bool


def steps_with_state(frame: DataFrame, name: str, parts: Mapping[str, DataFrame]) -> list[str]:
    """Return the step of each operator with state, in the order of Spark's reports.

    `name` is the source or step whose rows the frame has, and `parts` are all of them.
    """
    return [one.part for one in _operators(frame, name, parts) if one.has_state]


def combination_of(frame: DataFrame) -> str | None:
    """Return what combines the rows of a frame, or None if each row is made of one record."""
    for one in _operators(frame, "", {}):
        if one.name in _COMBINED:
            return _COMBINED[one.name]
    return None


def _operators(frame: DataFrame, name: str, parts: Mapping[str, DataFrame]) -> Iterator[_Operator]:
    """Yield the operators of a plan, each before its inputs."""
    owners = {_plan(one).hashCode(): part for part, one in parts.items() if part != name}
    waiting: list[tuple[Any, str]] = [(_plan(frame), name)]
    while waiting:
        plan, owner = waiting.pop()
        if owners:
            owner = owners.get(plan.hashCode(), owner)
        kind = str(plan.nodeName())
        inputs = _inputs(plan)
        yield _Operator(kind, owner, kind in _WITH_STATE and _keeps_state(plan, kind, inputs))
        waiting += [(one, owner) for one in reversed(inputs)]


def _keeps_state(plan: Any, kind: str, inputs: list[Any]) -> bool:
    """Whether Spark keeps rows for an operator; a join does for two streams only."""
    if kind == "Join":
        return all(one.isStreaming() for one in inputs)
    return bool(plan.isStreaming())


def _inputs(plan: Any) -> list[Any]:
    found = plan.children()
    return [found.apply(number) for number in range(found.size())]


def _plan(frame: DataFrame) -> Any:
    java_frame: Any = frame  # Spark has no API for this
    return java_frame._jdf.queryExecution().analyzed()  # noqa: SLF001
