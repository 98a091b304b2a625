"""The live display of `ottla cluster start` on a terminal.

Invariant: it only reads. If the cluster does not answer, it shows the last answer. It is removed
when the cluster stops; messages of the command appear above it.
"""

import asyncio
import logging
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final, TextIO

from ottla.cli.cluster.health import ClusterHealth, HealthAdmin, health_of
from ottla.cli.cluster.local_cluster import LocalCluster, ProcessState
from ottla.cli.result import Cell, Table
from ottla.cli.target import BOOTSTRAP
from ottla.cli.topic.partition_load import bytes_shown
from ottla.errors import OttlaError

if TYPE_CHECKING:
    from rich.live import Live

REDRAW_SECONDS: Final = 0.5
ASK_SECONDS: Final = 2.0


def lines_of(processes: Sequence[ProcessState], health: ClusterHealth | None) -> list[str]:
    """Return the display: a row for each process, and the health of the cluster."""
    known = {} if health is None else {one.id: one for one in health.brokers}
    rows: list[tuple[Cell, ...]] = []
    for one in processes:
        broker = None if one.broker is None else known.get(one.broker)
        runs = broker is not None and one.state == "running"
        disk = broker.disk if broker is not None and runs else None
        rows.append(
            (
                one.name,
                one.state,
                one.pid,
                one.address,
                broker.leaders if broker is not None and runs else None,
                broker.replicas if broker is not None and runs else None,
                None if disk is None else bytes_shown(disk.used_bytes),
            )
        )
    heads = ("PROCESS", "STATE", "PID", "ADDRESS", "LEADERS", "REPLICAS", "DISK")
    found = [*Table(heads, rows).lines()]
    if health is not None:
        found.append(
            f"controller: {'none' if health.controller is None else health.controller}, partitions:"
            f" {health.partitions}, under-replicated: {len(health.under_replicated)}, offline: "
            f"{len(health.offline)}"
        )
    return [*found, "Press Ctrl-C to stop."]


@asynccontextmanager
async def live_view(local: LocalCluster, terminal: TextIO) -> AsyncGenerator[None]:
    """Show the cluster on a terminal during the `with` block."""
    from rich.console import Console
    from rich.live import Live

    console = Console(file=terminal)
    with Live(
        console=console,
        auto_refresh=False,
        transient=True,
        redirect_stdout=sys.stdout.isatty(),  # otherwise "ready" would not reach a pipe
    ) as live:
        drawing = asyncio.ensure_future(_draw(local, live))
        try:
            yield
        finally:
            drawing.cancel()
            with suppress(asyncio.CancelledError):
                await drawing


async def _draw(local: LocalCluster, live: "Live") -> None:
    from rich.text import Text

    health: list[ClusterHealth] = []
    asking = asyncio.ensure_future(_ask(local, health))
    try:
        while True:
            lines = lines_of(local.processes(), health[-1] if health else None)
            live.update(Text("\n".join(lines)), refresh=True)
            await asyncio.sleep(REDRAW_SECONDS)
    finally:
        asking.cancel()
        with suppress(asyncio.CancelledError):
            await asking


async def _ask(local: LocalCluster, health: list[ClusterHealth]) -> None:
    """Keep the last answer of the cluster in a list of one."""
    # The client's warnings are about brokers whose state is shown.
    logging.getLogger("ottla").addHandler(logging.NullHandler())
    while any(one.state != "running" for one in local.processes()):
        await asyncio.sleep(REDRAW_SECONDS)
    async with HealthAdmin({BOOTSTRAP: local.layout.bootstrap_servers}) as admin:
        while True:
            with suppress(OttlaError):
                health[:] = [await health_of(admin)]
            await asyncio.sleep(ASK_SECONDS)
