"""Runs a table of cases in one test and reports every case that fails.

A table whose cases need nothing but their values takes the decorator. It is called like
`pytest.mark.parametrize`, but makes one test of the table:

    @each_case(("text", "value"), [("1", 1), ("0x10", 16)])
    def test_integers_are_parsed(text: str, value: int) -> None:
        assert parse(text) == value

A loop that computes its cases, or shares something between them, takes the context manager:

    def test_every_setting_has_a_default() -> None:
        cases = Cases()
        for setting in SETTINGS:
            with cases.case(setting.name):
                assert setting.default is not None
        cases.check()

Every case runs, also after one has failed. The test then fails once: its message lists each failing
case with the first line of its failure, and the tracebacks follow. A table without cases fails. The
first case may skip the whole test; a later one cannot.
"""

import functools
import inspect
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_SKIPPED = pytest.skip.Exception
_FAILED = pytest.fail.Exception


class Cases:
    """The cases of one test: how many ran, and which of them failed."""

    def __init__(self) -> None:
        self.count = 0
        self.failures: list[tuple[str, BaseException]] = []

    @contextmanager
    def case(self, *label: object) -> Generator[None]:
        """Run the body as one case; keep its failure for `check`."""
        self.count += 1
        try:
            yield
        except _SKIPPED as skipped:
            if self.count == 1:
                raise  # other cases would lack the same
            raise RuntimeError("a case cannot be skipped: leave it out") from skipped
        except (Exception, _FAILED) as failure:
            self.failures.append((", ".join(map(_shown, label)), failure))

    def check(self) -> None:
        """Raise one exception that lists every failed case; fail also if there was no case."""
        assert self.count, "there was no case"
        if self.failures:
            lines = [f"  {label}: {_first_line(failure)}" for label, failure in self.failures]
            summary = f"{len(self.failures)} of {self.count} cases failed:"
            raise BaseExceptionGroup(
                "\n".join([summary, *lines]), [failure for _, failure in self.failures]
            )


def each_case(
    names: str | Sequence[str],
    cases: Iterable[Any],
    *,
    ids: Callable[[Any], object] | Sequence[object] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call the decorated test once per case, with the case's values under these names.

    Other parameters of the test are fixtures. Each case gets a `tmp_path` and a `monkeypatch` of
    its own, and an empty `caplog` and `capsys`; every other fixture is shared by the cases. A case
    is labelled by its values, or by `ids`: a function of one value or a list, one label per case.
    """
    keys = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    single = isinstance(names, str) and len(keys) == 1
    table = [_labelled(number, case, single, ids) for number, case in enumerate(cases)]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)
        missing = set(keys) - set(signature.parameters)
        assert not missing, f"{test.__name__} has no parameter {', '.join(sorted(missing))}"

        @functools.wraps(test)
        def every_case(**fixtures: Any) -> None:
            run = Cases()
            for number, (label, values) in enumerate(table):
                with run.case(*label), pytest.MonkeyPatch.context() as patch:
                    own = _fixtures_of_a_case(fixtures, number, patch)
                    test(**own, **dict(zip(keys, values, strict=True)))
            run.check()

        fixtures = [p for p in signature.parameters.values() if p.name not in keys]
        every_case.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        return every_case

    return decorate


def _fixtures_of_a_case(
    fixtures: dict[str, Any], number: int, patch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """The fixtures as they would be in a separate test of the case."""
    own = dict(fixtures)
    for name, fixture in fixtures.items():
        if name == "tmp_path" and isinstance(fixture, Path):
            own[name] = fixture / f"case-{number}"
            own[name].mkdir()
        elif isinstance(fixture, pytest.MonkeyPatch):
            own[name] = patch
        elif isinstance(fixture, pytest.LogCaptureFixture):
            fixture.clear()
        elif isinstance(fixture, pytest.CaptureFixture):
            fixture.readouterr()
    return own


def _labelled(
    number: int,
    case: Any,
    single: bool,
    ids: Callable[[Any], object] | Sequence[object] | None,
) -> tuple[list[Any], list[Any]]:
    if hasattr(case, "marks"):  # pytest.param(*values, id=label)
        assert not case.marks, "a case takes no marks"
        return [case.id] if case.id else list(case.values), list(case.values)
    values = [case] if single else list(case)
    if ids is None:
        return values, values
    return [ids(value) for value in values] if callable(ids) else [ids[number]], values


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else getattr(value, "__name__", None) or repr(value)
    return text if len(text) <= 80 else f"{text[:60]}… ({len(text)} characters)"


def _first_line(failure: BaseException) -> str:
    lines = str(failure).strip().splitlines() or [""]
    return f"{type(failure).__name__}: {lines[0]}"
