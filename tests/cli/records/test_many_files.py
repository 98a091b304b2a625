"""`ottla produce` with more files than a process may open, and with pipes."""

import os
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from cli.records.harness import BIN, PATIENCE_S, broker_with, environment, run
from cli.stopping import unread, wait_until
from judges.ottla_broker import OttlaBroker
from ottla.client.admin import NewTopic

OPEN_MAX = 64


@pytest.fixture(scope="module")
def broker() -> Generator[OttlaBroker]:
    topics = [NewTopic(one, partitions=1) for one in ("many", "once", "gone")]
    with broker_with(*topics) as running:
        yield running


def values(broker: OttlaBroker, topic: str) -> list[bytes]:
    return run("ottla", "consume", topic, "-b", broker.bootstrap).stdout.splitlines()


def test_more_files_are_read_than_may_be_open_at_once(broker: OttlaBroker, tmp_path: Path) -> None:
    names = [str(number) for number in range(3 * OPEN_MAX)]
    for name in names:
        (tmp_path / name).write_text(f"{name}\n")
    limited = f'ulimit -n {OPEN_MAX}; exec "$0" "$@"'
    said = [str(BIN / "ottla"), "produce", "many", *names, "-b", broker.bootstrap]
    done = subprocess.run(
        ["sh", "-c", limited, *said],
        capture_output=True,
        check=False,
        cwd=tmp_path,
        timeout=PATIENCE_S,
        env=environment(),
    )
    assert done.stdout == f"Wrote {len(names)} records to many.\n".encode(), done.stderr
    assert values(broker, "many") == [name.encode() for name in names]


def test_pipe_is_opened_only_once(broker: OttlaBroker, tmp_path: Path) -> None:
    # Opening the pipe again would wait for another writer.
    (tmp_path / "file").write_text("first\n")
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(
        [str(BIN / "ottla"), "produce", "once", "file", "pipe", "-b", broker.bootstrap],
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        env=environment(),
    ) as process:
        try:
            (tmp_path / "pipe").write_text("second\n")
            out, _ = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert out == b"Wrote 2 records to once.\n"
    assert values(broker, "once") == [b"first", b"second"]


def test_file_deleted_meanwhile_is_reported(broker: OttlaBroker, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_text("second\n")
    with subprocess.Popen(
        [str(BIN / "ottla"), "produce", "gone", "pipe", "file", "-b", broker.bootstrap],
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env=environment(),
    ) as process:
        try:
            with open(tmp_path / "pipe", "wb", buffering=0) as pipe:
                pipe.write(b"first\n")
                written = pipe.fileno()
                wait_until(process, lambda: unread(written) == 0)
                (tmp_path / "file").unlink()
            _, said = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert process.returncode == 1
    assert said == (b"ottla: file: No such file or directory; 1 record was written to gone\n")
    assert values(broker, "gone") == [b"first"]
