"""Runs the installed scripts as users do."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from cli.forked import as_text, run_script

BIN = Path(sys.executable).parent
PLAIN = {"NO_COLOR": "1", "COLUMNS": "200", "TERM": "dumb"}


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return an environment without profiles."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OTTLA_")}
    return {**kept, **PLAIN, "OTTLA_CONFIG": os.devnull, **(more or {})}


def run(
    script: str,
    *arguments: str,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
    timeout_s: float = 60,
) -> subprocess.CompletedProcess[str]:
    """Run a script to its end."""
    return as_text(
        run_script(
            script,
            arguments,
            env=environment(env),
            stdin=(stdin or "").encode(),
            timeout_s=timeout_s,
        )
    )


def ottla(
    *arguments: str, env: Mapping[str, str] | None = None, stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `ottla`."""
    return run("ottla", *arguments, env=env, stdin=stdin)
