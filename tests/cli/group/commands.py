"""Runs `ottla` as a process, for tests of group commands."""

import json
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

from cli.forked import as_text, run_script

OTTLA = str(Path(sys.executable).parent / "ottla")
PATIENCE_S = 60


class Ran(NamedTuple):
    """Exit code and output of a command."""

    status: int
    out: str
    err: str

    @property
    def object(self) -> dict[str, Any]:
        """The only object on stdout."""
        assert self.out.count("\n") == 1
        return json.loads(self.out)

    @property
    def line(self) -> str:
        """The only line on stderr."""
        assert self.err.count("\n") == 1, self
        return self.err


def environment() -> dict[str, str]:
    """Return an environment without settings of this user."""
    return {**os.environ, "NO_COLOR": "1", "OTTLA_CONFIG": os.devnull}


def ottla(bootstrap: str, *arguments: str, stdin: bytes = b"") -> Ran:
    """Run a command on a cluster."""
    done = as_text(
        run_script(
            "ottla",
            [*arguments, "-b", bootstrap],
            env=environment(),
            stdin=stdin,
            timeout_s=PATIENCE_S,
        )
    )
    return Ran(done.returncode, done.stdout, done.stderr)
