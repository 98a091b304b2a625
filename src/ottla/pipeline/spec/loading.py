"""Loads a pipeline from a YAML file or from Python, with all problems and their positions.

Invariant: `Loaded.pipeline` has the values of its variables and of its profile. `Loaded.written`
has neither, so only that may be printed, logged or stored.
"""

import os
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
    Severity,
    did_you_mean,
    shown,
)
from ottla.pipeline.spec.variables import ReadFile, Variables
from ottla.pipeline.spec.yaml_document import Positions, parse_yaml

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


def load(
    path: str | FilePath,
    *,
    profile: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> Loaded:
    """Load a YAML file; raises InvalidPipeline with all problems, or OSError."""
    file = FilePath(path)
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
    return _loaded(value, variables, profile, [], Positions(), "")


def _loaded(
    value: object,
    variables: Variables,
    profile: str | None,
    problems: list[PipelineProblem],
    positions: Positions,
    file: str,
) -> Loaded:
    written = decode(value, Pipeline).part
    pipeline, wrong, replaced = decode(value, Pipeline, variables.substitute)
    found = problems_of(pipeline)
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
    return Loaded(pipeline, written, tuple(located), positions)


def _is_independent(problem: PipelineProblem, replaced: Iterable[Path]) -> bool:
    """Whether a problem cannot be the consequence of a value that was replaced."""
    if problem.severity is Severity.WARNING:
        return False
    return not any(
        all(one == other for one, other in zip(problem.path, path, strict=False))
        for path in replaced
    )
