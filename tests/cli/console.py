"""Runs commands as users do: the console scripts of this installation, as processes."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from cli.forked import as_text, run_script

SCRIPTS = Path(sys.executable).parent
PATIENCE_S = 120


def surroundings(home: Path | str, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return an environment without settings of this user."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("OTTLA_") and name not in ("XDG_CONFIG_HOME", "NO_COLOR")
    }
    return {**kept, "HOME": str(home), "COLUMNS": "120", "TERM": "xterm", **(more or {})}


def command(
    name: str,
    *arguments: str,
    home: Path | str = "/nonexistent",
    env: Mapping[str, str] | None = None,
    stdin: str = "",
    folder: Path | None = None,
    fresh: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run a script to its end; `fresh` starts a new interpreter for it."""
    return as_text(
        run_script(
            name,
            arguments,
            env=surroundings(home, env),
            stdin=stdin.encode(),
            timeout_s=PATIENCE_S,
            folder=folder,
            fresh=fresh,
        )
    )


def ottla(
    *arguments: str,
    home: Path | str = "/nonexistent",
    env: Mapping[str, str] | None = None,
    stdin: str = "",
    folder: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `ottla` to its end."""
    return command("ottla", *arguments, home=home, env=env, stdin=stdin, folder=folder)
