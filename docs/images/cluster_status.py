"""Draw docs/images/cluster-status.svg: a cluster before and after `kill -9` of a broker.

Run `.venv/bin/python docs/images/cluster_status.py` after a change of `ottla cluster status`. It
needs Java and the ports from 9092 on.
"""

import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[2]
OTTLA = str(Path(sys.executable).parent / "ottla")
COLUMNS = 100
SETTINGS = ("--override", "zookeeper.session.timeout.ms=2000")
OTHERS = ("-b", "127.0.0.1:9093")


def ottla(*arguments: str) -> str:
    """Return what a command prints."""
    done = subprocess.run([OTTLA, *arguments], check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def main() -> None:
    """Run a cluster for real, and save what the terminal shows."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO())

    def show(command: str, shown: str) -> None:
        console.print(Text(f"$ {command}", style="bold"))
        for line in shown.splitlines():
            console.print(Text(line, style="bold" if line.startswith("BROKER") else ""))
        console.print()

    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "cluster"
        cluster = subprocess.Popen(
            [OTTLA, "cluster", "start", "-n", "3", "--data", str(data), *SETTINGS],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert cluster.stdout is not None
            show("ottla cluster start -n 3 --data ./cluster &", cluster.stdout.readline())
            command = ("topic", "create", "orders", "--partitions", "6")
            show(f"ottla {' '.join(command)}", ottla(*command))
            show("ottla cluster status", ottla("cluster", "status"))
            os.kill(int((data / "broker-1.pid").read_text()), signal.SIGKILL)
            while not _is_led(ottla("cluster", "status", *OTHERS, "-o", "json")):
                time.sleep(0.1)
            show("kill -9 $(cat ./cluster/broker-1.pid)", "")
            shown = ottla("cluster", "status", *OTHERS)
            show(f"ottla cluster status {' '.join(OTHERS)}", shown)
        finally:
            cluster.send_signal(signal.SIGTERM)
            cluster.communicate()
    console.save_svg(str(ROOT / "docs" / "images" / "cluster-status.svg"), title="ottla")


def _is_led(status: str) -> bool:
    """Whether the other brokers have taken over."""
    found = json.loads(status)
    return len(found["brokers"]) == 2 and not found["offline"]


if __name__ == "__main__":
    main()
