"""`ottla pipeline reset`, and the files of earlier runs that prevent a new start."""

from pathlib import Path

import pytest

from cli.console import ottla
from cli.golden import check_golden
from ottla.pipeline.run_files import RunFiles

PIPELINE = """\
name: lines
output: ${OUT:-out}
sources:
  lines: {topic: lines, binary: line}
sinks:
  - {from: lines, console: true}
  - {from: lines, parquet: lines}
profiles:
  remote: {checkpoints: "s3a://bucket/lines"}
"""
CHECKPOINTS = Path(".ottla/pipelines/lines/checkpoints")
SKIPS = "so Spark would skip the first rows: move the files away, or write to another directory"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory in which both queries have run."""
    (tmp_path / "lines.yaml").write_text(PIPELINE)
    for query in ("lines-console", "lines-parquet"):
        write(tmp_path / CHECKPOINTS / query / "offsets" / "0")
    write(tmp_path / "out" / "lines" / "_spark_metadata" / "0")
    write(tmp_path / "out" / "others" / "kept")
    return tmp_path


def write(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")


def test_reset_deletes_checkpoints_and_outputs(folder: Path) -> None:
    words = ("pipeline", "reset", "lines.yaml", "--files")
    asked = ottla(*words, folder=folder)
    assert asked.returncode == 2
    assert "Cannot ask without a terminal: use --yes" in asked.stderr
    assert (folder / CHECKPOINTS / "lines-console").exists()
    done = ottla(*words, "--yes", "-o", "json", folder=folder)
    assert (done.returncode, done.stderr) == (0, "")
    check_golden("pipeline-reset.json", done.stdout)
    assert [*(folder / CHECKPOINTS).iterdir()] == []
    assert [one.name for one in (folder / "out").iterdir()] == ["others"]
    again = ottla(*words, "--yes", folder=folder)
    assert again.returncode == 0
    check_golden("pipeline-reset.txt", again.stdout)


def test_reset_keeps_files_that_it_may_not_delete(folder: Path) -> None:
    words = ("pipeline", "reset", "lines.yaml", "--yes")
    refused = ottla(*words, folder=folder)
    assert refused.returncode == 1
    assert "${OUT:-out}/lines has files of earlier runs" in refused.stderr
    with RunFiles("lines", folder / ".ottla" / "pipelines").running():
        running = ottla(*words, "--files", folder=folder)
    assert running.returncode == 1
    assert "pipeline lines is running already" in running.stderr
    remote = ottla(*words, "--profile", "remote", folder=folder)
    assert remote.returncode == 1
    assert "delete s3a://bucket/lines/lines-console with its own tools" in remote.stderr
    assert (folder / CHECKPOINTS / "lines-parquet" / "offsets" / "0").exists()
    assert (folder / "out" / "lines" / "_spark_metadata" / "0").exists()


def test_run_from_needs_new_checkpoints(folder: Path) -> None:
    words = ("pipeline", "run", "lines.yaml", "--from")
    done = ottla(*words, "earliest", folder=folder)
    assert done.returncode == 1
    assert "delete it with `ottla pipeline reset`" in done.stderr
    done = ottla(*words, "earliest", "--profile", "remote", folder=folder)
    assert "--from needs local checkpoints, not s3a://bucket/lines" in done.stderr
    done = ottla(*words, "yesterday", folder=folder)
    assert done.returncode == 2
    assert done.stderr.startswith('ottla: --from: "yesterday" is not earliest')


def test_new_checkpoint_with_an_old_parquet_log_is_refused(folder: Path) -> None:
    (folder / CHECKPOINTS / "lines-parquet" / "offsets" / "0").unlink()
    done = ottla("pipeline", "run", "lines.yaml", folder=folder)
    assert done.returncode == 1
    assert done.stderr.startswith("ottla: ${OUT:-out}/lines has files of another checkpoint than")
    assert done.stderr.endswith(f"{SKIPS}\n")
