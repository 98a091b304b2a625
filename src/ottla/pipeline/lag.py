"""How far queries are, told to consumer groups, so that Kafka's own tools show their lag.

Invariant: an offset is committed when its micro-batch is finished, and never before. A group that
cannot be told is logged and the query goes on: its place is in its checkpoint. The
connections for it last as long as the query, or until one fails.
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
from ottla.pipeline.offsets import Offsets, read
from ottla.pipeline.options import Use
from ottla.pipeline.source_options import SourceOptions, source_options

GROUP: Final = "ottla-pipeline."
"""What the groups of queries begin with, when they have none of their own."""

NEW_KIND: Final = "StreamingDataSourceV2"
"""What Spark calls streams in its plans, but for those of its older kind, as files are."""

_log: Final = logging.getLogger(__name__)


def group_of(options: SourceOptions, query: str | None, query_id: str) -> str:
    """The group of a query."""
    return options.group or f"{GROUP}{query or query_id}"


class LagListener(StreamingQueryListener):
    """Commits the end of each finished micro-batch."""

    def __init__(self, session: SparkSession) -> None:
        super().__init__()
        self._session = session
        self._queries: dict[str, Any] = {}  # by their runs
        self._sources: dict[str, list[_Source | None]] = {}  # the same

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """A query begins: it may have ended when its progress is heard of."""
        self._queries[str(event.runId)] = self._session.streams.get(str(event.id))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """A micro-batch is finished."""
        progress = event.progress
        try:
            found = self._known(progress)
            for known, source in zip(found, progress.sources if found else (), strict=True):
                end: Any = source.endOffset
                if known is None or not end:
                    continue
                group = group_of(known.options, progress.name, str(progress.id))
                known.tell(group, read(json.loads(end) if isinstance(end, str) else end))
        # Whatever it is, the query is not to suffer from it.
        except Exception as error:
            _log.warning("the group of query %s was not told: %s", progress.name, error)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """It has no sources any more."""
        self._queries.pop(str(event.runId), None)
        for known in self._sources.pop(str(event.runId), ()):
            if known is not None:
                known.survey.close()

    def _known(self, progress: Any) -> list["_Source | None"]:
        """The sources of a query, in order; None for those of others."""
        run = str(progress.runId)
        if run not in self._sources:
            found = _options_of(self._queries.get(run))
            self._sources[run] = [one and _Source(one, OffsetLookup(one)) for one in found]
        return self._sources[run]


@dataclass(frozen=True, slots=True)
class _Source:
    """A source of a query, and who tells its group."""

    options: SourceOptions
    survey: OffsetLookup

    def tell(self, group: str, offsets: Offsets) -> None:
        try:
            self.survey.tell(group, offsets)
        except Exception:
            self.survey.close()  # it connects anew for the next micro-batch
            raise


def _options_of(query: Any) -> list[SourceOptions | None]:
    """What the sources of a query were told, out of Spark's plan of it.

    A stream that a query uses in several places is one source, where it is first.
    """
    if query is None:
        return []  # it began before anybody listened
    leaves: Any = query._jsq.streamingQuery().logicalPlan().collectLeaves()  # noqa: SLF001
    found: list[SourceOptions | None] = []
    streams: list[Any] = []
    for number in range(leaves.size()):
        leaf = leaves.apply(number)
        if not leaf.isStreaming():
            continue
        is_new = leaf.getClass().getSimpleName().startswith(NEW_KIND)
        stream = leaf.stream() if is_new else leaf.source()
        if any(stream.equals(one) for one in streams):
            continue
        streams.append(stream)
        options: SourceOptions | None = None
        if is_new and leaf.relation().name() == "ottla":
            given = dict(leaf.relation().options().asCaseSensitiveMap())
            options = source_options(given, Use.STREAM)
        found.append(options)
    return found
