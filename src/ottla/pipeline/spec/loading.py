"""Loads a pipeline from a file, in YAML or Python, with all problems and their positions.

Invariant: `Loaded.pipeline` has the values of its variables and of its profile. `Loaded.written`
has neither, so only that may be printed, logged or stored. Errors may contain values, so
`Loaded.redaction` hides them.
"""

import os
import runpy
import traceback
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path as FilePath
from typing import NamedTuple

import msgspec

from ottla.pipeline.spec.checks import problems_of
from ottla.pipeline.spec.decoding import decode
from ottla.pipeline.spec.model import Pipeline, with_profile
from ottla.pipeline.spec.problems import (
    InvalidPipeline,
    Path,
    PipelineProblem,
    Position,
    Severity,
    did_you_mean,
    shown,
)
from ottla.pipeline.spec.redaction import NOTHING_HIDDEN, Redaction
from ottla.pipeline.spec.variables import ReadFile, Variables
from ottla.pipeline.spec.yaml_document import Positions, parse_yaml

AVRO_FILE = ".avsc"
FILE_BYTES_MAX = 4 * 1024 * 1024


class Loaded(NamedTuple):
    """A pipeline that can run."""

    pipeline: Pipeline
    """With the values of variables and of the profile."""
    written: Pipeline
    """As it was declared."""
    warnings: tuple[PipelineProblem, ...]
    positions: Positions
    """The positions in the file, for problems that are found later."""
    redaction: Redaction = NOTHING_HIDDEN
    """Hides the values of variables in errors and logs."""


def load(
    path: str | FilePath,
    *,
    profile: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> Loaded:
    """Load a file; raises InvalidPipeline with all problems, or OSError.

    A file with the ending .py is run, and its variable `pipeline` is the pipeline. Any other file
    is YAML.
    """
    file = FilePath(path)
    if file.suffix == ".py":
        return _load_python(file, profile, os.environ if environment is None else environment)
    with file.open("rb") as opened:
        data = opened.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        what = f"the file is larger than {FILE_BYTES_MAX // 1024 // 1024} MB"
        raise InvalidPipeline([PipelineProblem((), what)], str(path))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        what = f"the file is not UTF-8: byte {error.start} is {data[error.start]:#04x}"
        raise InvalidPipeline([PipelineProblem((), what)], str(path)) from None
    return load_text(
        text,
        str(path),
        profile=profile,
        environment=os.environ if environment is None else environment,
        read_file=lambda name: (file.parent / name).read_text(encoding="utf-8"),
    )


def _load_python(file: FilePath, profile: str | None, environment: Mapping[str, str]) -> Loaded:
    with file.open("rb"):  # raises OSError, which the code of the file may also raise
        pass
    try:
        found: object = runpy.run_path(str(file)).get("pipeline")
    except Exception as error:  # whatever the code of the file raises
        what = f"{type(error).__name__}: {error}"
        line = next((one.lineno for one in _frames(error) if one.filename == str(file)), None)
        position = None if line is None else Position(line, 1)
        raise InvalidPipeline([PipelineProblem((), what, position=position)], str(file)) from error
    if not isinstance(found, Pipeline):
        what = "the file has no variable pipeline = Pipeline(…)"
        raise InvalidPipeline([PipelineProblem((), what)], str(file))
    try:
        return resolve(
            found,
            profile=profile,
            environment=environment,
            read_file=lambda name: (file.parent / name).read_text(encoding="utf-8"),
        )
    except InvalidPipeline as error:
        raise InvalidPipeline(error.problems, str(file)) from None


def _frames(error: Exception) -> Iterable[traceback.FrameSummary]:
    """Return the frames of an error, the innermost first."""
    return reversed(traceback.extract_tb(error.__traceback__))


def load_text(
    text: str,
    file: str,
    *,
    profile: str | None = None,
    environment: Mapping[str, str],
    read_file: ReadFile,
) -> Loaded:
    """Load the text of a YAML file; `file` is its name in problems."""
    document = parse_yaml(text)
    if document.value is None:
        raise InvalidPipeline(document.problems, file)
    return _loaded(
        document.value,
        Variables(environment, read_file, profile),
        profile,
        document.problems,
        document.positions,
        file,
        read_file,
    )


def resolve(
    pipeline: Pipeline,
    *,
    profile: str | None = None,
    environment: Mapping[str, str] | None = None,
    read_file: Callable[[str], str] = lambda name: FilePath(name).read_text(encoding="utf-8"),
) -> Loaded:
    """Check a pipeline that was made in Python, and replace its variables.

    Raises InvalidPipeline with all problems.
    """
    variables = Variables(os.environ if environment is None else environment, read_file, profile)
    try:
        value: object = msgspec.to_builtins(pipeline)
    except TypeError as error:
        raise InvalidPipeline([PipelineProblem((), str(error))]) from None
    return _loaded(value, variables, profile, [], Positions(), "", read_file)


def _loaded(
    value: object,
    variables: Variables,
    profile: str | None,
    problems: list[PipelineProblem],
    positions: Positions,
    file: str,
    read_file: ReadFile,
) -> Loaded:
    written = decode(value, Pipeline).part
    pipeline, wrong, replaced = decode(value, Pipeline, variables.substitute)
    pipeline, unread = _with_schema_files(pipeline, read_file)
    found = [*unread, *problems_of(pipeline)]
    if wrong:  # an empty value that replaces a wrong one is not a mistake of its own
        found = [one for one in found if _is_independent(one, replaced)]
    problems = [*problems, *wrong, *variables.problems, *found]
    if profile is not None and profile not in pipeline.profiles:
        hint = did_you_mean(profile, pipeline.profiles)
        what = f"there is no profile {shown(profile)}{hint}"
        problems.append(PipelineProblem(("profiles",), what))
    located = sorted(
        (one if one.position else positions.locate(one) for one in dict.fromkeys(problems)),
        key=lambda one: one.position or (0, 0),
    )
    if any(one.severity is Severity.ERROR for one in located):
        raise InvalidPipeline(located, file)
    if profile is not None:
        pipeline = with_profile(pipeline, profile)
    redaction = Redaction(variables.values)
    return Loaded(pipeline, written, tuple(located), positions, redaction)


def _with_schema_files(
    pipeline: Pipeline, read_file: ReadFile
) -> tuple[Pipeline, list[PipelineProblem]]:
    """Replace the names of .avsc files by what they contain."""
    sources = dict(pipeline.sources)
    problems: list[PipelineProblem] = []
    for name, source in sources.items():
        if source.avro is None or not source.avro.endswith(AVRO_FILE):
            continue
        try:
            text = read_file(source.avro)
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            what = f"cannot read {shown(source.avro)}: {reason}"
            problems.append(PipelineProblem(("sources", name, "avro"), what))
        else:
            sources[name] = msgspec.structs.replace(source, avro=text)
    return msgspec.structs.replace(pipeline, sources=sources), problems


def _is_independent(problem: PipelineProblem, replaced: Iterable[Path]) -> bool:
    """Whether a problem cannot be the consequence of a value that was replaced."""
    if problem.severity is Severity.WARNING:
        return False
    return not any(
        all(one == other for one, other in zip(problem.path, path, strict=False))
        for path in replaced
    )
