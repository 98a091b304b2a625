"""Calls the hooks of a pipeline in a thread of its own: POSTs to a webhook, or runs a command.

Invariant: `call` returns at once. At most CALLS_MAX calls wait; a later one is dropped and logged.
A call that takes longer than the timeout of its hook is ended. A failed call is logged without its
address, headers, arguments and response, which may be secrets, and is not repeated.
"""

import json
import logging
import os
import queue
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Final, Self
from urllib.parse import urlsplit

from ottla.pipeline.hooks import HookCall
from ottla.pipeline.spec.durations import duration_ms
from ottla.pipeline.spec.model import Hook

CALLS_MAX: Final = 100
END_S: Final = 10.0
"""The calls that wait at the end of a run have so long."""

_POLL_S: Final = 0.2
_log: Final = logging.getLogger(__name__)


class HookFailed(Exception):
    """A call without success; the text has no secrets."""


class HookCaller:
    """Calls hooks during the `with` block, one after the other."""

    def __init__(
        self,
        *,
        end_s: float = END_S,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._end_s = end_s
        self._now = now
        self._calls: queue.Queue[HookCall] = queue.Queue(CALLS_MAX)
        self._is_ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_ending.set()
        if self._thread is None:
            return
        self._thread.join(self._end_s)
        if self._thread.is_alive():
            _log.warning("hook calls abandoned", {"calls": self._calls.qsize() + 1})
            process = self._process
            if process is not None:
                _kill(process)

    def call(self, calls: Sequence[HookCall]) -> None:
        """Call hooks soon."""
        for one in calls:
            try:
                self._calls.put_nowait(one)
            except queue.Full:
                _log.warning("hook call dropped", {"hook": one.name})
        if calls and self._thread is None:  # most runs call no hook
            self._thread = threading.Thread(target=self._run, name="ottla hooks", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                call = self._calls.get(timeout=_POLL_S)
            except queue.Empty:
                if self._is_ending.is_set():
                    return
                continue
            try:
                self._deliver(call)
            except HookFailed as error:
                _log.warning("hook failed", {"hook": call.name, "error": str(error)})
            except Exception as error:  # the edge of this thread; the text may have a secret
                fields = {"hook": call.name, "error": type(error).__name__}
                _log.warning("hook failed", fields)
            else:
                _log.info("hook called", {"hook": call.name})

    def _deliver(self, call: HookCall) -> None:
        event = {**call.event, "time": self._now().isoformat(timespec="milliseconds")}
        body = json.dumps(event).encode()
        if call.hook.command is not None:
            self._run_command(call.hook, body)
        else:
            post(call.hook, body)

    def _run_command(self, hook: Hook, body: bytes) -> None:
        assert hook.command is not None
        try:
            process = subprocess.Popen(
                [str(word) for word in hook.command],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is not for it, and all its processes can be ended
            )
        except OSError as error:
            raise HookFailed(f"the command did not start: {error.strerror}") from None
        self._process = process
        try:
            process.communicate(body, timeout=_timeout_s(hook))
        except subprocess.TimeoutExpired:
            _kill(process)
            process.wait()
            raise HookFailed("the command did not end in time") from None
        finally:
            self._process = None
        if process.returncode:
            raise HookFailed(f"the command ended with {process.returncode}")


def post(hook: Hook, body: bytes) -> None:
    """Send an event to a webhook; raises HookFailed. Redirects are not followed."""
    assert hook.webhook is not None
    url = urlsplit(str(hook.webhook))
    kind = HTTPSConnection if url.scheme == "https" else HTTPConnection
    timeout_s = _timeout_s(hook)
    connection = kind(url.hostname or "", url.port, timeout=timeout_s)
    # The timeout of a connection is that of each read, and a peer can send byte by byte.
    limit = threading.Timer(timeout_s, _shut_down, (connection,))
    limit.daemon = True
    limit.start()
    try:
        headers = {"Content-Type": "application/json", "User-Agent": "ottla"}
        given = {name: str(value) for name, value in hook.headers.items()}
        path = (url.path or "/") + (f"?{url.query}" if url.query else "")
        connection.request("POST", path, body, {**headers, **given})
        status = connection.getresponse().status
    except TimeoutError:
        raise HookFailed("the webhook did not respond in time") from None
    except (OSError, HTTPException) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        raise HookFailed(f"the webhook cannot be reached: {why}") from None
    finally:
        limit.cancel()
        connection.close()
    if not 200 <= status < 300:
        raise HookFailed(f"the webhook responded with status {status}")


def _timeout_s(hook: Hook) -> float:
    return duration_ms(hook.timeout) / 1000


def _shut_down(connection: HTTPConnection) -> None:
    peer: socket.socket | None = connection.sock
    if peer is not None:
        with suppress(OSError):
            peer.shutdown(socket.SHUT_RDWR)


def _kill(process: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
