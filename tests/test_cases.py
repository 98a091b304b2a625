"""A table of cases in one test: every case runs, and every failure is reported."""

import inspect
import logging
from pathlib import Path

import pytest

from cases import Cases, each_case


def test_every_failing_case_is_listed() -> None:
    ran: list[int] = []

    @each_case("number", range(5))
    def odd(number: int) -> None:
        ran.append(number)
        assert number % 2, "even"

    with pytest.raises(ExceptionGroup) as failed:
        odd()
    assert ran == [0, 1, 2, 3, 4]
    listed = failed.value.message.splitlines()
    assert listed[0] == "3 of 5 cases failed:"
    assert [line.split(":")[0] for line in listed[1:]] == ["  0", "  2", "  4"]
    assert all("AssertionError: even" in line for line in listed[1:])
    assert len(failed.value.exceptions) == 3


def test_table_without_failures_passes() -> None:
    sums: list[int] = []

    @each_case(("a", "b"), [(1, 2), (3, 4)])
    def added(a: int, b: int) -> None:
        sums.append(a + b)

    added()
    assert sums == [3, 7]


def test_table_without_cases_fails() -> None:
    @each_case("number", [])
    def nothing(number: int) -> None: ...

    with pytest.raises(AssertionError, match="no case"):
        nothing()


def test_pytest_failure_fails_its_case() -> None:
    cases = Cases()
    with cases.case("first"):
        pytest.fail("as told")
    with cases.case("second"), pytest.raises(KeyError):
        pass  # raises nothing
    with cases.case("third"):
        pass
    with pytest.raises(BaseExceptionGroup, match=r"(?s)2 of 3 .*first: Failed: as told.*second"):
        cases.check()


def test_only_the_first_case_can_skip_the_test() -> None:
    ran: list[int] = []

    @each_case("number", [1, 2, 3])
    def skipping(number: int) -> None:
        ran.append(number)
        if number == skipped:
            pytest.skip("not today")

    skipped = 1
    with pytest.raises(pytest.skip.Exception):
        skipping()
    assert ran == [1]
    skipped = 2
    with pytest.raises(RuntimeError, match="cannot be skipped"):
        skipping()


def test_label_can_be_a_pytest_param_id() -> None:
    @each_case("word", [pytest.param("a", id="the first")])
    def failing(word: str) -> None:
        raise ValueError(word)

    with pytest.raises(ExceptionGroup, match="the first: ValueError: a"):
        failing()


def test_cases_are_labelled_by_function_or_by_list() -> None:
    for ids in (str.upper, ["A", "B"]):

        @each_case("word", ["a", "b"], ids=ids)
        def failing(word: str) -> None:
            raise ValueError(word)

        with pytest.raises(ExceptionGroup, match=r"(?s)A: ValueError: a.*B: ValueError: b"):
            failing()


def test_unknown_name_is_rejected_at_once() -> None:
    with pytest.raises(AssertionError, match="no parameter nmber"):

        @each_case("nmber", [1])
        def misspelt(number: int) -> None: ...  # pyright: ignore[reportUnusedFunction]


@each_case("name", ["first", "second"])
def test_each_case_has_its_own_directory_and_patches(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not list(tmp_path.iterdir())
    (tmp_path / "left behind").touch()
    assert not hasattr(Cases, "patched")
    monkeypatch.setattr(Cases, "patched", True, raising=False)


@each_case("word", ["first", "second"])
def test_each_case_captures_only_its_own_output(
    word: str, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    logging.getLogger("ottla.cases").warning(word)
    print(word)
    assert caplog.messages == [word]
    assert capsys.readouterr().out == f"{word}\n"
    print("left behind")


def test_pytest_sees_only_the_fixtures() -> None:
    fixtures = inspect.signature(test_each_case_has_its_own_directory_and_patches).parameters
    assert list(fixtures) == ["tmp_path", "monkeypatch"]
