"""Commits the offsets of streams to consumer groups, so that Kafka's tools show their lag.

Invariant: the end of a micro-batch is committed after the micro-batch, never before. A failed
commit is logged and the query continues, because it resumes from its checkpoint. No broker delays
Spark's listener bus: the callbacks only pass the newest offsets to the query's committer.
"""

import json
import logging
from collections.abc import Mapping
from time import monotonic
from types import SimpleNamespace
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    JStreamingQueryListener,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from ottla.pipeline.offset_committer import CommitTarget, OffsetCommitter
from ottla.pipeline.options import Use
from ottla.pipeline.source_options import SourceOptions, source_options

GROUP: Final = "ottla-pipeline."
"""The prefix of the groups of queries without `kafka.group.id`."""

V2_PREFIX: Final = "StreamingDataSourceV2"
"""The class names of V2 streams in Spark's plans start with this; file streams are V1."""

_log: Final = logging.getLogger(__name__)


def group_of(options: SourceOptions, query: str | None, query_id: str) -> str:
    """Return the consumer group of a query."""
    return options.group or f"{GROUP}{query or query_id}"


class LagListener(StreamingQueryListener):
    """Passes the end offsets of each micro-batch to the committer of its query."""

    def __init__(self, session: SparkSession) -> None:
        super().__init__()
        self._session = session
        self._queries: dict[str, Any] = {}  # by run id
        self._committers: dict[str, OffsetCommitter | None] = {}  # by run id
        self._finishing: dict[str, OffsetCommitter] = {}  # by query id
        self._java: Any = None

    @property
    def _jlistener(self) -> Any:
        """The listener that Spark calls."""
        if self._java is None:
            session: Any = self._session
            jvm = session._jvm  # noqa: SLF001
            self._java = jvm.PythonStreamingQueryListenerWrapper(_JsonListener(self))
        return self._java

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Remember the query: it may have ended when its progress arrives."""
        self._queries[str(event.runId)] = self._session.streams.get(str(event.id))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Commit the end of a micro-batch."""
        progress = event.progress
        try:
            committer = self._committer(progress)
            if committer is not None:
                committer.commit([source.endOffset for source in progress.sources])
        except Exception as error:  # must not fail the query
            _log.warning("offset commit failed: query %s: %s", progress.name, error)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Let the committer of the query finish."""
        self._queries.pop(str(event.runId), None)
        committer = self._committers.pop(str(event.runId), None)
        if committer is not None:
            committer.finish()
            self._finishing[str(event.id)] = committer
        done = [query for query, one in self._finishing.items() if one.finished.done()]
        for query in done:
            del self._finishing[query]

    def wait(self, timeout_s: float) -> None:
        """Wait until all end offsets are committed or their commit has failed."""
        until_s = monotonic() + timeout_s
        for committer in (*self._finishing.values(), *self._committers.values()):
            if committer is not None:
                committer.wait(max(0.0, until_s - monotonic()))

    def _committer(self, progress: Any) -> OffsetCommitter | None:
        """Return the committer of a query; None if the query does not read topics."""
        run, query = str(progress.runId), str(progress.id)
        if run not in self._committers:
            found = _options_of(self._queries.get(run))
            targets = [
                one and CommitTarget(one, group_of(one, progress.name, query)) for one in found
            ]
            name, earlier = progress.name or query, self._finishing.get(query)
            self._committers[run] = (
                OffsetCommitter(name, targets, after=earlier) if any(targets) else None
            )
        return self._committers[run]


class _JsonListener(JStreamingQueryListener):
    """Gets the progress of a query from Java as one JSON text.

    PySpark's own listener gets it with hundreds of calls. For each observed metric, Java also
    searches all jars for a class. That took a fifth of Java's CPU time in small micro-batches.
    """

    def onQueryProgress(self, jevent: Any) -> None:  # noqa: N802
        """Pass the part of the progress that the listener reads."""
        found: Mapping[str, Any] = json.loads(jevent.progress().json())
        sources = [SimpleNamespace(endOffset=one.get("endOffset")) for one in found["sources"]]
        progress = SimpleNamespace(
            id=found["id"], runId=found["runId"], name=found.get("name"), sources=sources
        )
        event: Any = SimpleNamespace(progress=progress)
        self.pylistener.onQueryProgress(event)


def _options_of(query: Any) -> list[SourceOptions | None]:
    """Return the options of a query's sources, from Spark's plan of the query.

    A stream that a query uses several times is one source, at its first place in the plan.
    """
    if query is None:
        return []  # it started before the listener
    leaves: Any = query._jsq.streamingQuery().logicalPlan().collectLeaves()  # noqa: SLF001
    found: list[SourceOptions | None] = []
    streams: list[Any] = []
    for number in range(leaves.size()):
        leaf = leaves.apply(number)
        if not leaf.isStreaming():
            continue
        is_v2 = leaf.getClass().getSimpleName().startswith(V2_PREFIX)
        stream = leaf.stream() if is_v2 else leaf.source()
        if any(stream.equals(one) for one in streams):
            continue
        streams.append(stream)
        options: SourceOptions | None = None
        if is_v2 and leaf.relation().name() == "ottla":
            given = dict(leaf.relation().options().asCaseSensitiveMap())
            options = source_options(given, Use.STREAM)
        found.append(options)
    return found
