"""Unexpected errors: one line, and a traceback on request. Messages of a Kafka broker."""

import errno
import json

import pytest
import typer

from ottla.cli.failures import TRACEBACK, failure_of, own_mistake
from ottla.cli.output import Output
from ottla.cli.session import carried_out
from ottla.errors import ErrorCode, RequestError


def fails(error: Exception) -> None:
    raise error


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TRACEBACK, raising=False)


def test_unexpected_error_prints_one_line_and_exits_with_1(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert carried_out(lambda: fails(KeyError("a\nb")), Output.TABLE) == 1
    out, told = capsys.readouterr()
    assert out == ""
    assert told.startswith("ottla: internal error, please report it: KeyError: ")
    assert told.count("\n") == 1


def test_unexpected_error_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert carried_out(lambda: fails(RecursionError("too deep")), Output.JSON) == 1
    out, told = capsys.readouterr()
    assert json.loads(out)["error"]["code"] == "INTERNAL"
    assert told == ""


def test_os_error_names_its_file() -> None:
    denied = PermissionError(errno.EACCES, "Permission denied", "/some/where")
    assert own_mistake(denied) == "/some/where: Permission denied"


def test_traceback_is_shown_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TRACEBACK, "1")
    with pytest.raises(KeyError):
        carried_out(lambda: fails(KeyError("a")), Output.TABLE)


@pytest.mark.parametrize("error", [typer.Abort(), typer.Exit(3), typer.BadParameter("wrong")])
def test_errors_of_typer_are_passed_through(error: Exception) -> None:
    with pytest.raises(type(error)):
        carried_out(lambda: fails(error), Output.TABLE)


def test_errors_of_output_are_passed_through() -> None:
    with pytest.raises(BrokenPipeError):
        carried_out(lambda: fails(BrokenPipeError(errno.EPIPE, "Broken pipe")), Output.TABLE)


KAFKA_REQUEST = (
    "Request Request(processor=2, listenerName=ListenerName(CONTROLLER), "
    "buffer=java.nio.HeapByteBuffer[pos=22 lim=22 cap=42], envelope=None)"
)


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        (f"{KAFKA_REQUEST} needs DESCRIBE permission.", " The request needs DESCRIBE permission."),
        (f"{KAFKA_REQUEST[:90]}…", ""),  # cut off, because it is long
    ],
)
def test_missing_rights_are_told_without_kafkas_request(message: str, shown: str) -> None:
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert failure_of(RequestError(code, message)).message == f"{code.text}{shown}"
    named = failure_of(RequestError(code, f"broker 1: {message}")).message
    assert named == f"broker 1: {code.text}{shown}"
    assert failure_of(RequestError(code, "no rights")).message == "no rights"
