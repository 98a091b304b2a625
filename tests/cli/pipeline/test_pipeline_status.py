"""`ottla pipeline status` and `stop`, with a pipeline that the test pretends to run."""

import os
import signal
from pathlib import Path

import pytest

from cli.console import ottla
from cli.golden import check_golden
from ottla.cli.failures import Failed
from ottla.cli.pipeline.run_view import progress_result
from ottla.cli.pipeline.running import stop_pipeline
from ottla.pipeline.progress import PipelineProgress, QueryProgress, QueryState
from ottla.pipeline.run_files import DIRECTORY, RunFiles
from pipeline.spec.declarations import SENSORS

PROGRESS = PipelineProgress(
    "sensors",
    131.5,
    [
        QueryProgress("averages-parquet", state=QueryState.RUNNING, batch=7, rows_in=24180, lag=3),
        QueryProgress(
            "readings-dead-letters",
            is_dead_letters=True,
            state=QueryState.WAITING,
            batch=6,
            rows_in=20,
            rows_out=2,
            restarts=1,
            error="away",
        ),
    ],
)


def test_status_shows_running_pipelines(tmp_path: Path) -> None:
    files = RunFiles("sensors", tmp_path / DIRECTORY)
    with files.running():
        files.write(progress_result(PROGRESS))
        known = {str(os.getpid()): "process"}
        done = ottla("pipeline", "status", folder=tmp_path)
        check_golden("pipeline-status.txt", done.stdout.replace(f"{os.getpid():>7}", "  12345"))
        done = ottla("pipeline", "status", "-o", "json", folder=tmp_path)
        check_golden("pipeline-status.json", done.stdout, known)
    done = ottla("pipeline", "status", folder=tmp_path)
    assert "stopped" in done.stdout
    assert str(os.getpid()) not in done.stdout


def test_status_without_pipelines_says_so(tmp_path: Path) -> None:
    done = ottla("pipeline", "status", folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, "no pipeline has run in this directory\n")


def test_stop_of_a_stopped_pipeline_fails(tmp_path: Path) -> None:
    (tmp_path / "sensors.yaml").write_text(SENSORS)
    done = ottla("pipeline", "stop", "sensors.yaml", folder=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "pipeline sensors does not run in" in done.stderr
    check_golden("pipeline-stop.txt", done.stderr, {str(tmp_path): "directory"})
    done = ottla("pipeline", "stop", "sensors.yaml", "-o", "json", folder=tmp_path)
    check_golden("pipeline-stop.json", done.stdout, {str(tmp_path): "directory"})


def test_stop_waits_for_the_end(tmp_path: Path) -> None:
    files = RunFiles("sensors", tmp_path)
    sent: list[tuple[int, int]] = []
    going = files.running()
    going.__enter__()
    files.write({})

    def end(seconds: float) -> None:
        going.__exit__(None, None, None)

    def send(process: int, number: int) -> None:
        sent.append((process, number))

    result = stop_pipeline(files, 5, send=send, wait=end)
    assert sent == [(os.getpid(), signal.SIGTERM)]
    assert result.value["stopped"]


def test_stop_gives_up_after_its_timeout(tmp_path: Path) -> None:
    files = RunFiles("sensors", tmp_path)
    with files.running():
        files.write({})
        with pytest.raises(Failed, match="has not stopped within 0 s"):
            stop_pipeline(files, 0, send=lambda process, number: None)
