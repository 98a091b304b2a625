"""Draw docs/images/pipeline-run.svg: the terminal of `ottla pipeline run` with README's pipeline.

Run `.venv/bin/python docs/images/pipeline_run.py` after a change of the live view or the pipeline.
It needs Java and the port 9092.
"""

import io
import json
import os
import pty
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

from ottla.sync import Producer

ROOT = Path(__file__).parents[2]
OTTLA = str(Path(sys.executable).parent / "ottla")
COLUMNS = 100
RUN_S = 10.0
"""How long the queries run after their first micro-batches."""
START_S = 300.0

_NEW_FRAME = re.compile(r"\r\x1b\[2K(?:\x1b\[1A\x1b\[2K)*")
_RUNNING = re.compile(r"large-topic.*\n.*payments-dead-letters.*running.* \d+\.\d s")
"""Both queries have a micro-batch."""


def pipeline() -> str:
    """Return the pipeline of README.md."""
    text = (ROOT / "README.md").read_text()
    [block] = re.findall(r"^```yaml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return block


def payments(count: int) -> list[bytes]:
    """Return payments, of which some are large and a few are not JSON."""
    chance = random.Random(7)
    found: list[bytes] = []
    for _ in range(count):
        euros = round(chance.expovariate(1 / 300), 2)
        customer = chance.choice(("ann", "bob", "eve"))
        value = json.dumps({"customer": customer, "euros": euros}).encode()
        found.append(b"not JSON" if chance.random() < 0.002 else value)
    return found


def main() -> None:
    """Run the pipeline for real, and save what the terminal shows."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "large.yaml").write_text(pipeline())
        broker = subprocess.Popen(
            [OTTLA, "dev", "--data", f"{folder}/data"], stdout=subprocess.PIPE, text=True
        )
        try:
            assert broker.stdout is not None
            broker.stdout.readline()
            shown = _shown(folder)
        finally:
            broker.send_signal(signal.SIGTERM)
            broker.communicate()
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text("$ ottla pipeline run large.yaml", style="bold"))
    console.print(Text.from_ansi(shown))
    console.save_svg(str(ROOT / "docs" / "images" / "pipeline-run.svg"), title="ottla")


def _shown(folder: str) -> str:
    """Return the last frame of the live view, before Ctrl-C."""
    with Producer({"bootstrap.servers": "127.0.0.1:9092"}) as producer:
        values = payments(20_000)
        for value in values[:10_000]:
            producer.send("payments", value)
        producer.flush()
        process, terminal = pty.fork()
        if process == 0:
            os.chdir(folder)
            environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)}
            command = [OTTLA, "pipeline", "run", "large.yaml", "--http", "9193"]
            os.execve(OTTLA, command, environment)
        frames = ""
        until_s = time.monotonic() + START_S
        runs = False
        while time.monotonic() < until_s:
            frames += os.read(terminal, 65536).decode(errors="replace")
            if not runs and _RUNNING.search(frames):
                runs, until_s = True, time.monotonic() + RUN_S
            if runs:
                for value in values[10_000:10_050]:
                    producer.send("payments", value)
                del values[10_000:10_050]
    os.kill(process, signal.SIGINT)
    try:
        while os.read(terminal, 65536):
            pass
    except OSError:  # the command has ended
        os.waitpid(process, 0)
    return (
        [frame for frame in _NEW_FRAME.split(frames) if "query" in frame][-1]
        .replace("\r", "")
        .strip()
    )


if __name__ == "__main__":
    main()
