"""Processes that are forked for Spark instead of started."""

import os
import select
import subprocess
import sys
import textwrap
from collections.abc import Generator
from pathlib import Path

import pytest

from ottla.pipeline.fork_server import ForkServer, shared_server_executable

pytestmark = pytest.mark.skipif(
    not hasattr(os, "pidfd_open"), reason="a fork server needs pidfd_open of Linux"
)

WAIT_S = 60


@pytest.fixture(scope="module")
def server() -> Generator[ForkServer]:
    with ForkServer() as running:
        yield running


def module(directory: Path, text: str) -> dict[str, str]:
    """Write the module `work`; return an environment in which it can be imported."""
    (directory / "work.py").write_text(textwrap.dedent(text))
    return {**os.environ, "PYTHONPATH": f"{os.environ.get('PYTHONPATH', '')}:{directory}"}


def run(
    server: ForkServer, environment: dict[str, str], *arguments: str, directory: Path
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [server.executable, "-m", "work", *arguments],
        env=environment,
        cwd=directory,
        input="given",
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )


def test_forked_process_has_the_place_of_its_launcher(server: ForkServer, tmp_path: Path) -> None:
    text = """
        import os, sys
        print(os.getppid(), sys.argv[1:], sys.stdin.read(), os.environ["ONE"], os.getcwd())
        print("error", file=sys.stderr)
        print("pyarrow" in sys.modules, __name__, "GONE" in os.environ)
        sys.exit(7)
    """
    environment = {**module(tmp_path, text), "ONE": "1"}
    done = run(server, environment, "a", "b", directory=tmp_path)
    first, second = done.stdout.splitlines()
    assert first == f"{server.pid} ['a', 'b'] given 1 {tmp_path}"
    assert second == "True __main__ False"
    assert (done.stderr, done.returncode) == ("error\n", 7)


def test_end_of_a_forked_process_is_reported(server: ForkServer, tmp_path: Path) -> None:
    killed = module(tmp_path, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert run(server, killed, directory=tmp_path).returncode == 128 + 9
    failed = module(tmp_path, "raise ValueError('wrong')")
    done = run(server, failed, directory=tmp_path)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, "ValueError: wrong")
    assert run(server, module(tmp_path, ""), directory=tmp_path).returncode == 0


@pytest.mark.parametrize("is_killed", [False, True])
def test_forked_process_ends_with_its_launcher(
    server: ForkServer, tmp_path: Path, is_killed: bool
) -> None:
    text = "import os, time; print(os.getpid(), flush=True); time.sleep(3600)"
    environment = module(tmp_path, text)
    with subprocess.Popen(
        [server.executable, "-m", "work"], env=environment, stdout=subprocess.PIPE, text=True
    ) as launcher:
        assert launcher.stdout is not None
        pid = int(launcher.stdout.readline())
        forked = os.pidfd_open(pid)
        (launcher.kill if is_killed else launcher.terminate)()
    assert pid != launcher.pid
    ended, _, _ = select.select([forked], [], [], WAIT_S)
    os.close(forked)
    assert ended


def test_launcher_is_python_without_a_module(server: ForkServer) -> None:
    command = [server.executable, "-c", "import os; print(os.getppid())"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"{os.getpid()}\n"


FAILED = {
    "an import fails": ("pyarrow", "raise OSError"),
    "a thread is started": (
        "sitecustomize",
        "from threading import Event, Thread\nThread(target=Event().wait, daemon=True).start()",
    ),
}


@pytest.mark.parametrize("why", FAILED)
def test_launcher_is_python_if_the_server_has_failed(
    why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported, text = FAILED[why]
    environment = module(tmp_path, "import os; print(os.getppid())")
    (tmp_path / "failing").mkdir()
    (tmp_path / "failing" / f"{imported}.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'failing'}:{os.environ.get('PYTHONPATH', '')}")
    with ForkServer() as failing:
        for _ in range(2):  # while it fails, and afterwards
            assert run(failing, environment, directory=tmp_path).stdout == f"{os.getpid()}\n"


def test_only_this_python_is_forked(tmp_path: Path) -> None:
    other = tmp_path / "python"
    other.symlink_to(sys.executable)  # of another environment
    assert shared_server_executable(str(other)) is None
    assert shared_server_executable(str(tmp_path / "missing")) is None
    shared = shared_server_executable(sys.executable)
    assert shared is not None
    assert shared_server_executable(shared) == shared
