"""Errors that nobody foresaw: one line, and a way to see where they come from."""

import errno
import json

import pytest
import typer

from ottla.cli.failures import TRACEBACK, own_mistake
from ottla.cli.output import Output
from ottla.cli.session import carried_out


def fails(error: Exception) -> None:
    raise error


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TRACEBACK, raising=False)


def test_it_is_one_line_and_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert carried_out(lambda: fails(KeyError("a\nb")), Output.TABLE) == 1
    out, told = capsys.readouterr()
    assert out == ""
    assert told.startswith("ottla: internal error, please report it: KeyError: ")
    assert told.count("\n") == 1


def test_it_is_an_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert carried_out(lambda: fails(RecursionError("too deep")), Output.JSON) == 1
    out, told = capsys.readouterr()
    assert json.loads(out)["error"]["code"] == "INTERNAL"
    assert told == ""


def test_a_file_is_named() -> None:
    denied = PermissionError(errno.EACCES, "Permission denied", "/some/where")
    assert own_mistake(denied) == "/some/where: Permission denied"


def test_who_wants_to_see_where_it_is_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TRACEBACK, "1")
    with pytest.raises(KeyError):
        carried_out(lambda: fails(KeyError("a")), Output.TABLE)


@pytest.mark.parametrize("error", [typer.Abort(), typer.Exit(3), typer.BadParameter("wrong")])
def test_what_typer_ends_a_command_with_is_left_to_it(error: Exception) -> None:
    with pytest.raises(type(error)):
        carried_out(lambda: fails(error), Output.TABLE)


def test_output_that_cannot_be_written_is_told_elsewhere() -> None:
    with pytest.raises(BrokenPipeError):
        carried_out(lambda: fails(BrokenPipeError(errno.EPIPE, "Broken pipe")), Output.TABLE)
