"""The installed scripts, run as users run them."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

BIN = Path(sys.executable).parent
PLAIN = {"NO_COLOR": "1", "COLUMNS": "200", "TERM": "dumb"}


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """That of a user who has no profiles."""
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
    return subprocess.run(
        [str(BIN / script), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=environment(env),
        input=stdin if stdin is not None else "",
        timeout=timeout_s,
    )


def ottla(
    *arguments: str, env: Mapping[str, str] | None = None, stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `ottla`."""
    return run("ottla", *arguments, env=env, stdin=stdin)
