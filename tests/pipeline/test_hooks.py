"""When hooks are called, and how: real HTTP servers and real commands."""

import json
import logging
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from ottla.pipeline.hook_caller import CALLS_MAX, HookCaller
from ottla.pipeline.hooks import ON_FAILURE, HookCall, HookSchedule
from ottla.pipeline.progress import PipelineProgress, QueryProgress, QueryState, TopicLag
from ottla.pipeline.spec.model import ExpectationHook, Hook, LagHook, Pipeline

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WAITING = QueryProgress("q", state=QueryState.WAITING, error="away", restarts=1)


def schedule(**hooks: Any) -> HookSchedule:
    return HookSchedule(Pipeline(name="p", sources={}, sinks=[], **hooks))


def events(calls: HookSchedule, at_s: float, *queries: QueryProgress) -> list[dict[str, Any]]:
    return [dict(one.event) for one in calls.due_calls(PipelineProgress("p", at_s, queries))]


def test_failures_are_reported_at_most_once_in_a_while() -> None:
    calls = schedule(on_failure=Hook(command=["a"], every="1 minute"))
    named = {"event": "failure", "pipeline": "p", "query": "q", "error": "away"}
    assert events(calls, 0, QueryProgress("q")) == []
    assert events(calls, 1, WAITING) == [{**named, "restarts": 1, "final": False}]
    again = QueryProgress("q", state=QueryState.WAITING, error="away", restarts=3)
    assert events(calls, 5, again) == []
    assert events(calls, 61, again) == [{**named, "restarts": 3, "final": False}]
    assert events(calls, 130, again) == [], "nothing is new"


def test_end_of_the_pipeline_does_not_wait_and_is_reported_once() -> None:
    calls = schedule(on_failure=Hook(command=["a"]))
    assert events(calls, 1, WAITING)
    failed = QueryProgress("q", state=QueryState.FAILED, error="gone", restarts=1)
    [event] = events(calls, 2, failed)
    assert (event["final"], event["error"]) == (True, "gone")
    assert events(calls, 3, failed) == []
    assert calls.end_calls("query q: gone") == []
    [call] = schedule(on_failure=Hook(command=["a"])).end_calls("Spark has ended unexpectedly")
    assert (call.name, call.event["query"], call.event["final"]) == (ON_FAILURE, None, True)


def test_lag_is_reported_while_it_is_too_large() -> None:
    calls = schedule(on_lag=LagHook(command=["a"], records=10, longer_than="1 minute"))
    for lag, seconds, is_reported in ((10, 60.0, False), (11, 1.0, True), (1, 61.25, True)):
        query = QueryProgress(f"q{lag}", lag=lag, lags={"t": TopicLag(lag, seconds)})
        expected = [
            {
                "event": "lag",
                "pipeline": "p",
                "query": query.name,
                "lag": lag,
                "lag_s": round(seconds, 1),
            }
        ]
        assert events(calls, 0, query) == (expected if is_reported else [])
    late = QueryProgress("late", lag=99)
    found = [bool(events(calls, at_s, late)) for at_s in (0, 1, 59, 60, 61)]
    assert found == [True, False, False, True, False]
    assert events(calls, 0, QueryProgress("new")) == [], "there is no lag yet"


def test_failed_rows_are_counted_since_the_last_call() -> None:
    hook = ExpectationHook(command=["a"], rows=5, every="10 seconds")
    calls = schedule(on_expectation=hook)

    def found(at_s: float, **failed: int) -> list[tuple[int, int]]:
        counts = {f"x.{name}": count for name, count in failed.items()}
        query = QueryProgress("q", failed=counts)
        return [(one["rows"], one["total"]) for one in events(calls, at_s, query)]

    assert found(0, a=4) == []
    assert found(1, a=7) == [(7, 7)]
    assert found(5, a=20, b=5) == [(5, 5)], "each expectation has its own time"
    assert found(11, a=21) == [(14, 21)]
    assert found(30, a=25) == []


def test_pipeline_without_hooks_calls_nothing() -> None:
    query = QueryProgress("q", state=QueryState.FAILED, lag=1000, failed={"x.y": 3})
    assert events(schedule(), 0, query) == []
    assert schedule().end_calls("gone") == []


class Server(HTTPServer):
    """A webhook that responds with a status, byte by byte if it is slow."""

    def __init__(self, status: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status = status
        self.requests: list[tuple[str, dict[str, str], Any]] = []
        self.is_slow = False
        self.ended = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/alerts?team=data"


class Handler(BaseHTTPRequestHandler):
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append((self.path, dict(self.headers), json.loads(body)))
        if self.server.is_slow:
            try:
                while not self.server.ended.wait(0.05):
                    self.wfile.write(b"H")
            except OSError:
                pass
            return
        self.send_response(self.server.status)
        self.send_header("Location", "/elsewhere")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@contextmanager
def webhook(status: int = 204) -> Generator[Server]:
    with Server(status) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            server.ended.set()
            server.shutdown()
            thread.join()


def call(hook: Hook, number: int = 0) -> HookCall:
    return HookCall(ON_FAILURE, hook, {"event": "failure", "number": number})


def called(caplog: pytest.LogCaptureFixture, *hooks: Hook) -> list[tuple[str, str]]:
    """Call hooks, and return what was logged."""
    caplog.set_level(logging.INFO)
    caplog.clear()
    with HookCaller(end_s=60, now=lambda: NOW) as caller:
        caller.call([call(one, number) for number, one in enumerate(hooks)])
    fields = [one.args for one in caplog.records]
    return [
        (one.msg, str(each.get("error", "")))
        for one, each in zip(caplog.records, fields, strict=True)
        if isinstance(each, dict)
    ]


def test_webhook_gets_the_event(caplog: pytest.LogCaptureFixture) -> None:
    with webhook() as server:
        headers = {"Authorization": "Bearer hunter2"}
        assert called(caplog, Hook(webhook=server.url, headers=headers)) == [("hook called", "")]
    [(path, found, event)] = server.requests
    assert path == "/alerts?team=data"
    assert (found["Content-Type"], found["Authorization"]) == ("application/json", "Bearer hunter2")
    assert event == {"event": "failure", "number": 0, "time": "2026-01-01T00:00:00.000+00:00"}


def test_failed_webhook_is_logged_without_its_address(caplog: pytest.LogCaptureFixture) -> None:
    with webhook(302) as server:
        assert called(caplog, Hook(webhook=server.url, headers={"X": "hunter2"})) == [
            ("hook failed", "the webhook responded with status 302")
        ]
        assert len(server.requests) == 1, "a redirect is not followed"
    [(event, error)] = called(caplog, Hook(webhook=server.url))
    assert (event, error) == ("hook failed", "the webhook cannot be reached: Connection refused")
    assert "hunter2" not in caplog.text
    assert "alerts" not in caplog.text


def test_webhook_that_responds_byte_by_byte_is_ended(caplog: pytest.LogCaptureFixture) -> None:
    with webhook() as server:
        server.is_slow = True
        [(event, _)] = called(caplog, Hook(webhook=server.url, timeout="200 ms"))
    assert event == "hook failed"


def test_command_gets_the_event_on_its_input(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    code = "import sys; open(sys.argv[1], 'w').write(sys.stdin.read())"
    hook = Hook(command=[sys.executable, "-c", code, str(tmp_path / "event")])
    assert called(caplog, hook) == [("hook called", "")]
    assert json.loads((tmp_path / "event").read_text())["event"] == "failure"


def test_failed_commands_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    wrong = [
        Hook(command=["/does/not/exist"]),
        Hook(command=["sh", "-c", "exit 3"]),
        Hook(command=["sh", "-c", "sleep 60 & wait"], timeout="100 ms"),
    ]
    assert called(caplog, *wrong) == [
        ("hook failed", "the command did not start: No such file or directory"),
        ("hook failed", "the command ended with 3"),
        ("hook failed", "the command did not end in time"),
    ]


def test_calls_do_not_wait_and_the_queue_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    hook = Hook(command=["sleep", "60"], timeout="1 minute")
    with HookCaller(end_s=0) as caller:
        caller.call([call(hook, number) for number in range(CALLS_MAX + 10)])
    dropped = [one for one in caplog.records if one.msg == "hook call dropped"]
    assert len(dropped) == 10
    assert "hook calls abandoned" in caplog.text
