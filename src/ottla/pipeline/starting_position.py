"""Where the sources of a pipeline start: `ottla pipeline run --from`.

A position is `earliest`, `latest`, a time with a time zone, or offsets as JSON, in the form of
Spark's Kafka connector: `{"readings": {"0": 12, "1": -2}}`, with -2 for earliest and -1 for latest.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, cast

import msgspec

from ottla.pipeline.spec.model import RECORD_KINDS, Pipeline, Source, kinds_given
from ottla.pipeline.spec.problems import did_you_mean, shown

LATEST, EARLIEST = -1, -2
_NAMES: Final = ("earliest", "latest")


class BadPosition(ValueError):
    """A text that is not a position; the text has the reason."""


def start_from(pipeline: Pipeline, position: str) -> Pipeline:
    """Return the pipeline whose sources start at a position; raises BadPosition."""
    text = position.strip()
    offsets = _offsets(text) if text.startswith("{") else None
    if offsets is None:
        _check_time(text)
    else:
        _check_topics(pipeline, offsets)
    sources = {
        name: _moved(source, text, offsets) if kinds_given(source, RECORD_KINDS) else source
        for name, source in pipeline.sources.items()
    }
    return msgspec.structs.replace(pipeline, sources=sources)


def _moved(source: Source, text: str, offsets: Mapping[str, Mapping[str, int]] | None) -> Source:
    if offsets is None:
        return msgspec.structs.replace(source, start=text)
    mine = {topic: offsets[topic] for topic in _topics(source) if topic in offsets}
    if not mine:
        return source
    options = {**source.options, "startingOffsets": json.dumps(mine)}
    # Not a time, which would be a second position.
    return msgspec.structs.replace(source, start="earliest", options=options)


def _check_time(text: str) -> None:
    if text in _NAMES:
        return
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        what = (
            f"{shown(text)} is not earliest, latest, a time such as 2026-01-01T00:00:00Z, or "
            'offsets such as {"topic": {"0": 12}}'
        )
        raise BadPosition(what) from None
    if found.tzinfo is None:
        raise BadPosition(f"{shown(text)} has no time zone: add Z for UTC")


def _offsets(text: str) -> dict[str, dict[str, int]]:
    try:
        found: object = json.loads(text)
    except ValueError as error:
        raise BadPosition(f"the offsets are not JSON: {error}") from None
    offsets: dict[str, dict[str, int]] = {}
    for topic, partitions in cast("dict[str, Any]", found).items():
        if not isinstance(partitions, dict) or not partitions:
            raise BadPosition(f'topic {shown(topic)}: expected offsets such as {{"0": 12}}')
        offsets[topic] = {}
        for partition, offset in cast("dict[str, object]", partitions).items():
            is_number = isinstance(offset, int) and not isinstance(offset, bool)
            if not partition.isdecimal() or not is_number or cast("int", offset) < EARLIEST:
                what = f"topic {shown(topic)}: {shown(partition)}: {offset!r} is not an offset"
                raise BadPosition(f"{what} of a partition")
            offsets[topic][partition] = cast("int", offset)
    return offsets


def _check_topics(pipeline: Pipeline, offsets: Mapping[str, object]) -> None:
    known = [topic for source in pipeline.sources.values() for topic in _topics(source)]
    for topic in offsets:
        if topic not in known:
            hint = did_you_mean(topic, known)
            raise BadPosition(f"no source names topic {shown(topic)}{hint}")
    for name, source in pipeline.sources.items():
        topics = _topics(source)
        missing = [topic for topic in topics if topic not in offsets]
        if missing and len(missing) < len(topics):
            what = f"source {shown(name)} also reads topic {shown(missing[0])}: add its offsets"
            raise BadPosition(what)


def _topics(source: Source) -> list[str]:
    match source.topic:
        case None:
            return []
        case str() as topic:
            return [str(topic)]
        case topics:
            return [str(one) for one in topics]
