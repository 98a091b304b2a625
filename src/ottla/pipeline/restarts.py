"""Decides what happens after a streaming query has failed: a restart with backoff, or the end.

`FAILURES` is the table of errors. A restart cannot fix a final error, such as a deleted record or a
wrong password. Every other error is retried: a broker or a store may be away for a while.

Invariant: the delay before a restart grows from `first_s` to at most `longest_s`. A query is
restarted at most `restarts_max` times in a row; a run of `stable_s` starts a new row.
"""

import re
from typing import Final, NamedTuple, TypeAlias

_PLAN: Final = "=== Streaming Query ==="
_STREAM_FAILED: Final = re.compile(
    r"^\[STREAM_FAILED\] Query \[.*?\] terminated with exception: ", re.DOTALL
)
_SQLSTATE: Final = re.compile(r"\s*SQLSTATE: \w+")
_PYTHON_ERROR: Final = re.compile(r"^(?:[A-Za-z_][\w]*\.)*([A-Z]\w*): (.*)$", re.MULTILINE)
_TRACEBACK: Final = "Traceback (most recent call last)"
_MASKING: Final = "UnboundLocalError"
"""PySpark raises it after an error of a source, when it stops a reader that it could not create."""

_TEXT_CHARACTERS_MAX: Final = 400


class FailureKind(NamedTuple):
    """A row of the table: the errors that a pattern finds, and whether a restart can fix them."""

    name: str
    pattern: re.Pattern[str]
    is_final: bool
    hint: str
    """What the user can do; empty if the error says it."""


def _row(name: str, pattern: str, hint: str = "", *, is_final: bool = True) -> FailureKind:
    return FailureKind(name, re.compile(pattern), is_final, hint)


FAILURES: Final = (
    _row(
        "failed expectation",
        r"USER_RAISED_EXCEPTION.*expectation \S+ failed: ",
        "the expectation has otherwise: fail; correct the input, or choose another action",
    ),
    _row("data loss", r"\bDataLost\b|failOnDataLoss=false"),
    _row("wrong option", r"\bBadOption\b|\bInvalidSettings\b"),
    _row(
        "missing topic",
        r"UNKNOWN_TOPIC_OR_PARTITION|does not host this topic|topic \S+ does not exist",
        "create the topic with `ottla topic create`",
    ),
    _row("no permission", r"AUTHORIZATION_FAILED|[Nn]ot authorized|AUTHENTICATION_FAILED"),
    _row("record too large", r"MESSAGE_TOO_LARGE|RECORD_LIST_TOO_LARGE|RecordTooLarge"),
    _row(
        "checkpoint in use",
        r"CONCURRENT_STREAM_LOG_UPDATE|Multiple streaming queries are concurrently using",
        "another process runs the same query with the same checkpoint",
    ),
    _row(
        "changed state",
        r"STATE_STORE_\w*SCHEMA\w*|STREAMING_STATEFUL_OPERATOR_NOT_MATCH|"
        r"STATE_STORE_OPERATOR_OUT_OF_ORDER|STREAM_STATE_\w+",
        "the checkpoint belongs to another version of the step; use another checkpoint",
    ),
    _row(
        "changed sources",
        r"There are \[\d+\] sources in the checkpoint offsets and now there are",
        "the checkpoint belongs to another version of the pipeline; use another checkpoint",
    ),
    _row(
        "missing module",
        r"\bModuleNotFoundError\b",
        "install it for the Python of the driver and of all executors",
    ),
    _row(
        "Python too slow",
        r"Python worker failed to connect back",
        "the machine is too busy to start a Python process in 10 s",
        is_final=False,
    ),
    _row("other", r"", is_final=False),
)
"""The first row whose pattern is found counts; the last one has every error."""


class Failure(NamedTuple):
    """The error of a query, on one line."""

    kind: FailureKind
    text: str

    def __str__(self) -> str:
        """Return the error, and what the user can do."""
        return f"{self.text} ({self.kind.hint})" if self.kind.hint else self.text


class RestartPolicy(NamedTuple):
    """How often and after which delays a query is restarted."""

    restarts_max: int = 10
    first_s: float = 1.0
    factor: float = 2.0
    longest_s: float = 60.0
    stable_s: float = 300.0


class RestartAfter(NamedTuple):
    """Start the query again after a delay."""

    delay_s: float
    restarts: int
    """The restarts in a row, with this one."""


class GiveUp(NamedTuple):
    """Do not start the query again."""

    reason: str


Decision: TypeAlias = RestartAfter | GiveUp


def failure_of(error: str) -> Failure:
    """Return what failed, from the text of Spark's error."""
    text = failure_text(error)
    kind = next(one for one in FAILURES if one.pattern.search(text))
    return Failure(kind, text)


def failure_text(error: str) -> str:
    """Return the cause of Spark's error on one line, without the plan and without tracebacks.

    The error of a Python process ends with the line of its exception, which names the cause.
    """
    text = _STREAM_FAILED.sub("", error.partition(_PLAN)[0].strip())
    found: list[tuple[str, str]] = _PYTHON_ERROR.findall(text.partition(_TRACEBACK)[2])
    if found:
        name, message = next((one for one in reversed(found) if one[0] != _MASKING), found[-1])
        text = message if name in ("Exception", "OttlaError") else f"{name}: {message}"
    lines = _SQLSTATE.sub("", text).strip().splitlines()
    line = lines[0].strip() if lines else "unknown error"
    return line if len(line) <= _TEXT_CHARACTERS_MAX else f"{line[: _TEXT_CHARACTERS_MAX - 1]}…"


def after_failure(
    failure: Failure, *, restarts: int, ran_s: float, policy: RestartPolicy
) -> Decision:
    """Decide about a query that failed after `ran_s`, and was restarted so often in a row."""
    if failure.kind.is_final:
        return GiveUp(str(failure))
    if ran_s >= policy.stable_s:
        restarts = 0
    if restarts >= policy.restarts_max:
        times = "once" if restarts == 1 else f"{restarts} times"
        why = f"{failure}; it was restarted {times}" if restarts else str(failure)
        return GiveUp(why)
    delay_s = min(policy.longest_s, policy.first_s * policy.factor**restarts)
    return RestartAfter(delay_s, restarts + 1)
