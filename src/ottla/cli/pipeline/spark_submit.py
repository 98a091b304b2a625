"""`ottla pipeline run --dry-run`: the line for spark-submit; and the masters that a run accepts.

Invariant: the line has no values of variables. A Spark setting with a variable is left out of the
line: the pipeline sets it when it starts.
"""

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from ottla.cli.escapes import printable
from ottla.cli.failures import Misused
from ottla.cli.result import Result
from ottla.pipeline.spec.model import Pipeline

_LOCAL: Final = re.compile(r"local(-cluster)?(\[[^\]]*\])?")
_UNTESTED: Final = re.compile(r"yarn|k8s://.+")
_GATEWAY: Final = "PYSPARK_GATEWAY_PORT"
"""spark-submit sets it for the program that it runs."""


def check_master(master: str, environment: Mapping[str, str] = os.environ) -> None:
    """Raise Misused for a master on which a pipeline does not run."""
    if master.startswith("sc://") or environment.get("SPARK_REMOTE"):
        named = "" if master.startswith("sc://") else " (the environment has SPARK_REMOTE)"
        what = f"Spark Connect is not supported{named}: use --master local[*] or spark://HOST:PORT"
        raise Misused(what)
    if _UNTESTED.fullmatch(master):
        if _GATEWAY not in environment:
            what = f"--master {master} needs spark-submit: --dry-run prints the line, which no test"
            raise Misused(f"{what} runs yet")
    elif not _LOCAL.fullmatch(master) and not master.startswith("spark://"):
        what = f"--master: {master!r} is not local[N], spark://HOST:PORT, yarn or k8s://URL"
        raise Misused(what)


def submit_result(
    file: Path, written: Pipeline, master: str, profile: str | None, words: Sequence[str]
) -> Result:
    """Return the line that runs a pipeline with spark-submit; `words` are more options of `run`."""
    check_master(master, {_GATEWAY: ""})
    line = ["spark-submit", "--master", master, "--deploy-mode", "client"]
    line += ["--name", f"ottla {written.name}"]
    left_out: list[str] = []
    for name, value in written.spark.items():
        if "${" in value:
            left_out.append(name)
        else:
            line += ["--conf", f"{name}={value}"]
    line += [str(Path(__file__).with_name("submitted.py")), "pipeline", "run", str(file)]
    line += ["--master", master, *words]
    if profile is not None:
        line += ["--profile", profile]
    text = printable(shlex.join(line))
    notes = ["# Not in the line, because of variables: " + ", ".join(left_out)] if left_out else []
    if _UNTESTED.fullmatch(master):
        notes.append("# No test runs this on YARN or Kubernetes yet.")
    return Result({"command": [*line], "left_out": [*left_out]}, [*map(printable, notes), text])
