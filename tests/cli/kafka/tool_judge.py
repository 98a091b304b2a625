"""Kafka's tools in one virtual machine, and ours beside them: what each said, and its exit code."""

import subprocess
from base64 import b64decode
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cli.console import PATIENCE_S, SCRIPTS, surroundings
from judges.java import source_command
from kafka_java import judge_needed

JUDGE = Path(__file__).parents[2] / "compat" / "ToolJudge.java"


class Said(NamedTuple):
    """The exit code, and stdout and stderr as they came."""

    code: int
    text: str


def java(folder: Path, main_class: str, runs: Sequence[Sequence[str]]) -> list[Said]:
    """Run a tool of Kafka's once with each of the arguments."""
    script = folder / "script"
    script.write_text("".join("\t".join((main_class, "", *run)) + "\n" for run in runs))
    with judge_needed():
        command = source_command(JUDGE, str(script))
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    answers = [line.split(" ") for line in done.stdout.splitlines()]
    assert len(answers) == len(runs), done.stderr
    return [Said(int(code), b64decode(text).decode()) for code, text in answers]


def ours(tool: str, *arguments: str) -> Said:
    """Run a tool of ours."""
    done = subprocess.run(
        [str(SCRIPTS / tool), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=PATIENCE_S,
        env=surroundings("/nonexistent"),
    )
    return Said(done.returncode, done.stdout)
