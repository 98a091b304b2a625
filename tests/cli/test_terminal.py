"""A session on a terminal: prompts, colors and Ctrl-C."""

import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from cli.console import PATIENCE_S, SCRIPTS, surroundings
from ottla.cli import profiles
from ottla.cli.profiles import Profiles

# Runs a command on a terminal of its own and exits like it.
SPAWN = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"
BOLD = b"\x1b[1m"
CTRL_C = b"\x03"


class Terminal:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.shown = b""

    def wait_for(self, text: bytes) -> None:
        assert self.process.stdout is not None
        while text not in self.shown:
            more = os.read(self.process.stdout.fileno(), 4096)
            assert more, self.shown
            self.shown += more

    def type(self, keys: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(keys)
        self.process.stdin.flush()

    def end(self) -> int:
        assert self.process.stdout is not None
        while more := os.read(self.process.stdout.fileno(), 4096):
            self.shown += more
        return self.process.wait(PATIENCE_S)


@contextmanager
def terminal(
    home: Path, *arguments: str, env: Mapping[str, str] | None = None
) -> Generator[Terminal]:
    process = subprocess.Popen(
        [sys.executable, "-c", SPAWN, str(SCRIPTS / "ottla"), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=surroundings(home, env),
    )
    try:
        yield Terminal(process)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()


def a_profile(home: Path) -> Path:
    path = profiles.config_path({"HOME": str(home)})
    profiles.write(path, Profiles().with_settings("dev", {"bootstrap.servers": "a:1"}))
    return path


def test_answer_no_changes_nothing(tmp_path: Path) -> None:
    path = a_profile(tmp_path)
    with terminal(tmp_path, "profile", "delete", "dev") as session:
        session.wait_for(b"Delete profile dev? [y/N]: ")
        session.type(b"n\n")
        assert session.end() == 1
        assert b"nothing was changed" in session.shown
    assert "dev" in profiles.read(path).settings


def test_answer_yes_deletes(tmp_path: Path) -> None:
    path = a_profile(tmp_path)
    with terminal(tmp_path, "profile", "delete", "dev") as session:
        session.wait_for(b"[y/N]: ")
        session.type(b"y\n")
        assert session.end() == 0
        assert b"Profile dev was deleted." in session.shown
    assert profiles.read(path) == Profiles()


def test_ctrl_c_at_a_prompt_exits_with_130(tmp_path: Path) -> None:
    path = a_profile(tmp_path)
    with terminal(tmp_path, "profile", "delete", "dev") as session:
        session.wait_for(b"[y/N]: ")
        session.type(CTRL_C)
        assert session.end() == 130
        assert b"Traceback" not in session.shown
    assert "dev" in profiles.read(path).settings


# Prompts, and prompts again after an interrupt. Another thread gets the signal, so it does not
# interrupt the wait of the prompt. A signal just before the wait has the same effect.
ASKING = """
import signal, sys, threading
from ottla.cli.prompt import confirmed
threading.Thread(target=threading.Event().wait, daemon=True).start()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
for number in range(int(sys.argv[1])):
    try:
        confirmed(f"{number}?")
    except KeyboardInterrupt:
        pass
"""


def test_ctrl_c_just_before_the_wait_is_not_lost() -> None:
    rounds = 100
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", ASKING, str(rounds)],
        stdin=theirs, stderr=theirs, start_new_session=True,
    ) as process:  # fmt: skip
        os.close(theirs)
        try:
            for number in range(rounds):
                shown = b""
                while f"{number}? [y/N]: ".encode() not in shown:
                    assert select.select([ours], [], [], PATIENCE_S)[0], f"{number} was not heard"
                    shown += os.read(ours, 4096)
                process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()
            os.close(ours)


def test_invalid_answer_is_asked_again(tmp_path: Path) -> None:
    path = a_profile(tmp_path)
    with terminal(tmp_path, "profile", "delete", "dev") as session:
        session.wait_for(b"[y/N]: ")
        session.type(b"maybe\n")
        session.wait_for(b"Enter y or n.\r\nDelete profile dev? [y/N]: ")
        session.type(b"\n")
        assert session.end() == 1
    with terminal(tmp_path, "profile", "delete", "dev") as session:
        session.wait_for(b"[y/N]: ")
        session.type(b"\x04")  # Ctrl-D, end of input
        assert session.end() == 130
    assert "dev" in profiles.read(path).settings


def test_yes_flag_skips_the_prompt(tmp_path: Path) -> None:
    path = a_profile(tmp_path)
    with terminal(tmp_path, "profile", "delete", "dev", "-y") as session:
        assert session.end() == 0
        assert b"[y/N]" not in session.shown
    assert profiles.read(path) == Profiles()


def test_terminal_has_colors_unless_no_color_is_set(tmp_path: Path) -> None:
    a_profile(tmp_path)
    with terminal(tmp_path, "profile", "list") as session:
        assert session.end() == 0
        assert BOLD + b"PROFILE" in session.shown
    with terminal(tmp_path, "profile", "list", env={"NO_COLOR": "1"}) as session:
        assert session.end() == 0
        assert b"PROFILE" in session.shown
        assert b"\x1b" not in session.shown


def test_control_characters_are_escaped(tmp_path: Path) -> None:
    path = profiles.config_path({"HOME": str(tmp_path)})
    profiles.write(path, Profiles().with_settings("\x1b]0;x\x07", {"client.id": "\x1b[2J"}))
    for arguments in (("list",), ("show", "\x1b]0;x\x07")):
        with terminal(tmp_path, "profile", *arguments, env={"NO_COLOR": "1"}) as session:
            assert session.end() == 0
            assert b"\x1b" not in session.shown
            assert b"\\x1b" in session.shown
