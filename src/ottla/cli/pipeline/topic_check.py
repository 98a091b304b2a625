"""`ottla pipeline validate --topics`: compares the sources of a pipeline with their topics.

Invariant: nothing is written to the topics or to a group, and no topic is created. Only the newest
records are read: what a topic held before its format changed does not matter.
"""

import json
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Final

from ottla.cli.records.newest import newest_records
from ottla.client.admin import Admin
from ottla.client.consumer.consumer import Consumer
from ottla.pipeline.spec.loading import Loaded
from ottla.pipeline.spec.model import Pipeline, Source
from ottla.pipeline.spec.problems import Path, PipelineProblem, Severity, did_you_mean, shown
from ottla.settings.admin import ADMIN
from ottla.settings.config import ConfigDef
from ottla.settings.consumer import CONSUMER

SAMPLE: Final = 100  # records of each topic
TIMEOUT_MS: Final = "20000"  # a person waits for it


async def topic_problems(loaded: Loaded) -> list[PipelineProblem]:
    """Return what is wrong with the topics of the sources; raises an OttlaError."""
    pipeline = loaded.pipeline
    settings = client_settings(pipeline, ADMIN)
    async with Admin({"default.api.timeout.ms": TIMEOUT_MS, **settings}) as admin:
        existing = await admin.list_topics(include_internal=True)
    problems: list[PipelineProblem] = []
    for name, source in pipeline.sources.items():
        problems += _missing(name, source, existing)
        if (described := _format(source)) is not None:
            fits, format_name = described
            for path, topic in named_topics(name, source):
                if topic in existing:
                    values = await sample(client_settings(pipeline, CONSUMER), topic, SAMPLE)
                    problems += _misfits(path, values, fits, format_name)
    located = map(loaded.positions.locate, problems)
    return sorted(located, key=lambda one: one.position or (0, 0))


def client_settings(pipeline: Pipeline, table: ConfigDef) -> dict[str, object]:
    """Return the settings of a client; those that only other clients know are left out."""
    known = {name: one for name, one in pipeline.client.items() if table.find(name)}
    return {**known, "bootstrap.servers": str(pipeline.brokers)}


def named_topics(name: str, source: Source) -> Generator[tuple[Path, str]]:
    """Yield the topics that a source names, with their paths in the declaration."""
    path: Path = ("sources", name, "topic")
    match source.topic:
        case None:
            pass
        case str() as topic:
            yield path, str(topic)
        case topics:
            for number, topic in enumerate(topics):
                yield (*path, number), str(topic)


def _missing(
    name: str, source: Source, existing: Mapping[str, object]
) -> Generator[PipelineProblem]:
    for path, topic in named_topics(name, source):
        if topic not in existing:
            what = f"topic {shown(topic)} does not exist{did_you_mean(topic, existing)}"
            yield PipelineProblem(path, what)
    if source.pattern is not None and not any(re.search(source.pattern, one) for one in existing):
        what = "no topic matches it yet"
        yield PipelineProblem(("sources", name, "pattern"), what, Severity.WARNING)


def _format(source: Source) -> tuple[Callable[[bytes], bool], str] | None:
    """Return the test of a value, and what it should be; None if any bytes will do."""
    if source.json is not None:
        return _is_json_object, "JSON objects"
    if source.csv is not None or source.text is not None:
        return _is_text, "UTF-8 text"
    return None


def _is_json_object(value: bytes) -> bool:
    try:
        return isinstance(json.loads(value), dict)
    except (ValueError, RecursionError):
        return False


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _misfits(
    path: Path, values: Sequence[bytes | None], fits: Callable[[bytes], bool], format_name: str
) -> Generator[PipelineProblem]:
    """Yield a warning if some records become dead letters, and an error if all do."""
    wrong = sum(value is None or not fits(value) for value in values)
    if wrong:
        what = f"{wrong} of the newest {len(values)} records are not {format_name}"
        is_all = wrong == len(values)
        yield PipelineProblem(path, what, Severity.ERROR if is_all else Severity.WARNING)


async def sample(settings: Mapping[str, object], topic: str, count: int) -> list[bytes | None]:
    """Return the values of the newest records of a topic that exists, up to about `count`."""
    async with Consumer({**settings, "allow.auto.create.topics": "false"}) as consumer:
        places = await consumer.partitions(topic)
    each = -(-count // max(1, len(places)))
    return [one.value for one in await newest_records(settings, places, each)]
