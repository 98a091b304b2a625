"""When a failed query is restarted: which errors are final, and how the delays grow."""

import re

from cases import Cases
from ottla.pipeline.restarts import (
    FAILURES,
    GiveUp,
    RestartAfter,
    RestartPolicy,
    after_failure,
    failure_of,
    failure_text,
)

STREAM = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: "
PLAN = "\n=== Streaming Query ===\nplan with DataLost and expectation a.b failed: x"
WORKER = (
    STREAM + "Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times\n"
    "Traceback (most recent call last):\n"
    '  File "worker.py", line 1, in main\n'
    "{line}\n SQLSTATE: XXKST" + PLAN
)
CASES = [
    (
        STREAM + "[USER_RAISED_EXCEPTION] expectation a.b failed: x > 1 SQLSTATE: P0001" + PLAN,
        "failed expectation",
        "[USER_RAISED_EXCEPTION] expectation a.b failed: x > 1",
    ),
    (
        WORKER.format(line="ottla.pipeline.loss.DataLost: t-0 ends at 3. Set failOnDataLoss=false"),
        "data loss",
        "DataLost: t-0 ends at 3. Set failOnDataLoss=false",
    ),
    (
        WORKER.format(line="ottla.pipeline.options.BadOption: unknown option x"),
        "wrong option",
        "BadOption: unknown option x",
    ),
    (
        WORKER.format(
            line="ottla.pipeline.options.BadOption: x\n\nDuring handling of the above exception, "
            "another exception occurred:\n\nTraceback (most recent call last):\n"
            "UnboundLocalError: cannot access local variable 'reader'"
        ),
        "wrong option",
        "BadOption: x",
    ),
    (
        WORKER.format(line="UnboundLocalError: cannot access local variable 'x'"),
        "other",
        "UnboundLocalError: cannot access local variable 'x'",
    ),
    (
        WORKER.format(line="ModuleNotFoundError: No module named 'steps'"),
        "missing module",
        "ModuleNotFoundError: No module named 'steps'",
    ),
    (
        STREAM + "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. SQLSTATE: 40000",
        "checkpoint in use",
        "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log.",
    ),
    (
        STREAM + "Python worker failed to connect back." + PLAN,
        "Python too slow",
        "Python worker failed to connect back.",
    ),
    (
        WORKER.format(line="ValueError: first\n\nDuring handling\nsteps.Broken: second"),
        "other",
        "Broken: second",
    ),
    (STREAM + "No space left on device" + PLAN, "other", "No space left on device"),
    ("", "other", "unknown error"),
]


def test_errors_are_classified_by_the_table() -> None:
    cases = Cases()
    for error, kind, text in CASES:
        with cases.case(error[:80], kind):
            failure = failure_of(error)
            assert (failure.kind.name, failure.text) == (kind, text)
    cases.check()


def test_table_has_unique_names_and_ends_with_every_error() -> None:
    names = [one.name for one in FAILURES]
    assert len(set(names)) == len(names)
    assert not FAILURES[-1].is_final
    assert re.fullmatch(FAILURES[-1].pattern, "") is not None


def test_long_error_is_shortened() -> None:
    assert len(failure_text("x" * 5000)) == 400


OTHER = failure_of("away")
POLICY = RestartPolicy(restarts_max=9, first_s=1, factor=2, longest_s=60, stable_s=300)


def test_delays_double_up_to_a_minute() -> None:
    delays: list[float] = []
    restarts = 0
    while isinstance(
        decision := after_failure(OTHER, restarts=restarts, ran_s=1, policy=POLICY), RestartAfter
    ):
        delays.append(decision.delay_s)
        restarts = decision.restarts
    assert delays == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert decision == GiveUp("away; it was restarted 9 times")


def test_stable_run_starts_a_new_row_of_restarts() -> None:
    assert after_failure(OTHER, restarts=9, ran_s=300, policy=POLICY) == RestartAfter(1, 1)
    assert isinstance(after_failure(OTHER, restarts=9, ran_s=299, policy=POLICY), GiveUp)


def test_final_error_is_not_retried() -> None:
    failure = failure_of("DataLost: gone")
    assert after_failure(failure, restarts=0, ran_s=0, policy=POLICY) == GiveUp("DataLost: gone")


def test_no_restarts_give_up_at_once() -> None:
    policy = RestartPolicy(restarts_max=0)
    assert after_failure(OTHER, restarts=0, ran_s=1, policy=policy) == GiveUp("away")
