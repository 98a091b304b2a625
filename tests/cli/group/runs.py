"""`ottla` as a process, for tests of commands on groups."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

OTTLA = str(Path(sys.executable).parent / "ottla")
PATIENCE_S = 60


class Ran(NamedTuple):
    """How a command ended, and what it said."""

    status: int
    out: str
    err: str

    @property
    def object(self) -> dict[str, Any]:
        """The one object on stdout."""
        assert self.out.count("\n") == 1
        return json.loads(self.out)

    @property
    def line(self) -> str:
        """The one line on stderr."""
        assert self.err.count("\n") == 1, self
        return self.err


def environment() -> dict[str, str]:
    """Without what the user of this machine has set up."""
    return {**os.environ, "NO_COLOR": "1", "OTTLA_CONFIG": os.devnull}


def ottla(bootstrap: str, *arguments: str) -> Ran:
    """Run a command on a cluster."""
    done = subprocess.run(
        [OTTLA, *arguments, "-b", bootstrap],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        timeout=PATIENCE_S,
        env=environment(),
    )
    return Ran(done.returncode, done.stdout, done.stderr)
