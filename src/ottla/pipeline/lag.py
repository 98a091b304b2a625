"""Commits the offsets of streams to consumer groups, so that Kafka's tools show their lag.

Invariant: the end of a micro-batch is committed after the micro-batch, never before. A failed
commit is logged and the query continues, because it resumes from its checkpoint. The connections
stay open until the query ends or a commit fails.
"""

import json
import logging
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from ottla.pipeline.offset_lookup import OffsetLookup
from ottla.pipeline.offsets import Offsets, from_json
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
    """Commits the end offsets of each micro-batch."""

    def __init__(self, session: SparkSession) -> None:
        super().__init__()
        self._session = session
        self._queries: dict[str, Any] = {}  # by run id
        self._sources: dict[str, list[_Source | None]] = {}  # by run id

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Remember the query: it may have ended when its progress arrives."""
        self._queries[str(event.runId)] = self._session.streams.get(str(event.id))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Commit the end of a micro-batch."""
        progress = event.progress
        try:
            found = self._known(progress)
            for known, source in zip(found, progress.sources if found else (), strict=True):
                end: Any = source.endOffset
                if known is None or not end:
                    continue
                group = group_of(known.options, progress.name, str(progress.id))
                known.commit(group, from_json(json.loads(end) if isinstance(end, str) else end))
        except Exception as error:  # must not fail the query
            _log.warning("offset commit failed: query %s: %s", progress.name, error)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Close the connections of the query."""
        self._queries.pop(str(event.runId), None)
        for known in self._sources.pop(str(event.runId), ()):
            if known is not None:
                known.lookup.close()

    def _known(self, progress: Any) -> list["_Source | None"]:
        """Return the sources of a query in order; None for a source of another format."""
        run = str(progress.runId)
        if run not in self._sources:
            found = _options_of(self._queries.get(run))
            self._sources[run] = [one and _Source(one, OffsetLookup(one)) for one in found]
        return self._sources[run]


@dataclass(frozen=True, slots=True)
class _Source:
    """A source of a query, and the client that commits its offsets."""

    options: SourceOptions
    lookup: OffsetLookup

    def commit(self, group: str, offsets: Offsets) -> None:
        try:
            self.lookup.commit(group, offsets)
        except Exception:
            self.lookup.close()  # it connects again for the next micro-batch
            raise


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
