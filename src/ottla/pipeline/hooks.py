"""Decides when the hooks of a pipeline are called: `on_failure`, `on_lag` and `on_expectation`.

Invariant: a hook is called for the same query or expectation at most once in `every`, except for
the failure that ends the pipeline, which is always reported. An event has names and numbers, and
the error of a query; never the value of a variable of the declaration.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from ottla.pipeline.progress import PipelineProgress, QueryProgress, QueryState
from ottla.pipeline.spec.durations import duration_ms
from ottla.pipeline.spec.model import Hook, Pipeline

ON_FAILURE: Final = "on_failure"
ON_LAG: Final = "on_lag"
ON_EXPECTATION: Final = "on_expectation"


class HookCall(NamedTuple):
    """A hook to call, with the event that it gets."""

    name: str
    """on_failure, on_lag or on_expectation."""
    hook: Hook
    event: Mapping[str, Any]


class HookSchedule:
    """The calls of a run, from its progress."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._called_s: dict[tuple[str, str], float] = {}  # by hook and query or expectation
        self._restarts: dict[str, int] = {}  # that were reported, by query
        self._failed: set[str] = set()  # the queries whose end was reported
        self._rows: dict[str, int] = {}  # that were reported, by expectation

    def due_calls(self, progress: PipelineProgress) -> list[HookCall]:
        """Return the calls that the progress causes."""
        calls = [call for query in progress.queries for call in self._of_query(query, progress)]
        return [*calls, *self._of_expectations(progress)]

    def end_calls(self, error: str) -> list[HookCall]:
        """Return the calls for an end of the pipeline that is not the failure of a query."""
        hook = self._pipeline.on_failure
        if hook is None or self._failed:
            return []
        event = {"event": "failure", "pipeline": self._pipeline.name, "query": None}
        return [HookCall(ON_FAILURE, hook, {**event, "error": error, "final": True})]

    def _of_query(self, query: QueryProgress, progress: PipelineProgress) -> Iterator[HookCall]:
        named = {"pipeline": progress.pipeline, "query": query.name}
        hook = self._pipeline.on_failure
        if hook is not None:
            is_final = query.state is QueryState.FAILED and query.name not in self._failed
            is_new = query.restarts > self._restarts.get(query.name, 0)
            # At the end the call does not wait, because there is no later one.
            if is_final or (is_new and self._is_due(ON_FAILURE, query.name, hook, progress)):
                self._restarts[query.name] = query.restarts
                if is_final:
                    self._failed.add(query.name)
                event = {"event": "failure", **named, "error": query.error}
                yield HookCall(
                    ON_FAILURE, hook, {**event, "restarts": query.restarts, "final": is_final}
                )
        lagging = self._pipeline.on_lag
        if (
            lagging is not None
            and self._lags(query)
            and self._is_due(ON_LAG, query.name, lagging, progress)
        ):
            seconds = None if query.lag_s is None else round(query.lag_s, 1)
            event = {"event": "lag", **named, "lag": query.lag, "lag_s": seconds}
            yield HookCall(ON_LAG, lagging, event)

    def _lags(self, query: QueryProgress) -> bool:
        """Whether a query is further behind than the hook allows."""
        hook = self._pipeline.on_lag
        if hook is None:
            return False
        if hook.records is not None and query.lag is not None and query.lag > hook.records:
            return True
        if hook.longer_than is None or query.lag_s is None:
            return False
        return query.lag_s * 1000 > duration_ms(hook.longer_than)

    def _of_expectations(self, progress: PipelineProgress) -> Iterator[HookCall]:
        hook = self._pipeline.on_expectation
        if hook is None:
            return
        for name, count in progress.failed.items():
            rows = count - self._rows.get(name, 0)
            if rows >= hook.rows and self._is_due(ON_EXPECTATION, name, hook, progress):
                self._rows[name] = count
                named = {"pipeline": progress.pipeline, "expectation": name}
                event = {"event": "expectation", **named, "rows": rows, "total": count}
                yield HookCall(ON_EXPECTATION, hook, event)

    def _is_due(self, name: str, subject: str, hook: Hook, progress: PipelineProgress) -> bool:
        """Whether a hook may be called again; notes the call."""
        last_s = self._called_s.get((name, subject))
        if last_s is not None and progress.elapsed_s < last_s + duration_ms(hook.every) / 1000:
            return False
        self._called_s[name, subject] = progress.elapsed_s
        return True
