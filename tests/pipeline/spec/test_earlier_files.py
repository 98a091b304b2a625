"""Pipeline files and kept declarations of earlier versions still load, with the same meaning.

`earlier/` has files as they were written, and beside each the declaration that a run of that time
has kept in its checkpoints. Do not change or record them again: add a file for a new key.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

import msgspec
import pytest

from cases import Cases
from ottla.pipeline.earlier_runs import (
    DECLARATION,
    CannotStartAgain,
    check_changes,
    query_directories,
)
from ottla.pipeline.spec import model
from ottla.pipeline.spec.decoding import decode, key_rows
from ottla.pipeline.spec.loading import Loaded, load_text
from ottla.pipeline.spec.model import (
    Expectation,
    Hook,
    Part,
    Pipeline,
    Sink,
    Source,
    dead_letter_query,
    dead_letter_topic,
    sink_name,
)
from ottla.pipeline.streaming_queries import checkpoint_directory

EARLIER: Final = Path(__file__).with_name("earlier")
FILES: Final = sorted(EARLIER.glob("*.yaml"))
ENVIRONMENT: Final = {
    "ALERTS": "http://127.0.0.1:1/",
    "BROKERS": "127.0.0.1:9092",
    "DIRECTORY": "data",
    "MORE": "more",
    "PASSWORD": "hunter2",
}


def loaded(file: Path, profile: str | None = None) -> Loaded:
    text = file.read_text()
    return load_text(text, file.name, profile=profile, environment=ENVIRONMENT, read_file=str)


def test_earlier_files_have_no_problems() -> None:
    cases = Cases()
    for file in FILES:
        for profile in (None, *loaded(file).written.profiles):
            with cases.case(file.name, profile):
                assert loaded(file, profile).warnings == ()
    cases.check()


def test_kept_declarations_are_those_of_their_files() -> None:
    cases = Cases()
    for file in FILES:
        with cases.case(file.name):
            found = decode(json.loads(file.with_suffix(".json").read_text()), Pipeline)
            assert found.problems == []
            written = loaded(file).written
            kept = msgspec.structs.replace(written, tests=[], profiles={}, client={})
            assert found.part == kept
    cases.check()


def test_queries_continue_from_the_checkpoints_of_earlier_runs(tmp_path: Path) -> None:
    cases = Cases()
    for file in FILES:
        with cases.case(file.name):
            written = at(loaded(file).written, tmp_path / file.stem)
            queries = query_directories(written, written)
            for checkpoint, _ in queries:
                assert checkpoint.path is not None
                (checkpoint.path / "offsets").mkdir(parents=True)
                (checkpoint.path / "offsets" / "0").touch()
                kept = file.with_suffix(".json").read_text()
                (checkpoint.path / DECLARATION).write_text(kept)
            check_changes(queries, written)
            sources = {
                name: msgspec.structs.replace(source, topic="another", pattern=None)
                for name, source in written.sources.items()
            }
            changed = msgspec.structs.replace(written, sources=sources)
            with pytest.raises(CannotStartAgain):  # so the declarations were compared
                check_changes(queries, changed)
    cases.check()


def at(pipeline: Pipeline, folder: Path) -> Pipeline:
    return msgspec.structs.replace(pipeline, checkpoints=f"{folder}/checkpoints")


def test_every_key_is_in_an_earlier_file() -> None:
    parts: list[type[Part]] = [
        kind
        for kind in vars(model).values()
        if isinstance(kind, type) and issubclass(kind, Part) and kind is not Part
    ]
    keys = {(kind.__name__, key.name) for kind in parts for key in key_rows(kind)}
    used = {key for file in FILES for key in used_keys(loaded(file).written)}
    # The hooks on lag and on expectations have all keys of a hook.
    inherited = {
        (kind.__name__, key.name) for kind in Hook.__subclasses__() for key in key_rows(Hook)
    }
    assert keys - inherited - used == set(), "add a file to earlier/ for a new key"


def used_keys(value: Any) -> Iterator[tuple[str, str]]:
    """Yield the class and key of each value that a file sets, by what is not the default."""
    match value:
        case msgspec.Struct():
            for field in msgspec.structs.fields(value):
                found = getattr(value, field.name)
                is_made = field.default_factory is not msgspec.NODEFAULT
                if found != (field.default_factory() if is_made else field.default):
                    yield type(value).__name__, field.encode_name
                yield from used_keys(found)
        case dict():
            for one in cast("dict[str, Any]", value).values():
                yield from used_keys(one)
        case list():
            for one in cast("list[Any]", value):
                yield from used_keys(one)
        case _:
            pass


def test_what_a_file_leaves_out_means_the_same() -> None:
    """The defaults, and the names of checkpoints, topics and queries that follow from them."""
    source = Source(topic="t", json="a INT")
    assert (source.start, source.unknown_fields) == ("earliest", "ignore")
    assert Expectation(check="a > 0").otherwise == "warn"
    sink = Sink(from_="s", topic="t")
    assert (sink.mode, sink.exactly_once, sink_name(sink)) == ("append", None, "s-topic")
    pipeline = Pipeline(name="p", sources={"s": source}, sinks=[sink])
    assert (pipeline.trigger, pipeline.brokers) == ("1 second", "127.0.0.1:9092")
    assert not pipeline.together
    assert dead_letter_topic(pipeline) == "p.dead-letters"
    assert dead_letter_query("s") == "s-dead-letters"
    assert checkpoint_directory(pipeline) == ".ottla/pipelines/p/checkpoints"
    hook = Hook(webhook="http://127.0.0.1/")
    assert (hook.timeout, hook.every) == ("10 seconds", "1 minute")
