"""Runs a cluster on this machine: ZooKeeper and brokers as child processes.

Invariant: one process at a time runs the cluster of a directory. The children hold the lock, too,
so it is free when all of them have ended. A stop ends brokers before ZooKeeper, so that they close
their sessions.
"""

import asyncio
import fcntl
import json
import os
import random
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from ottla.broker.stop_signals import StopSignals
from ottla.cli.child_process import ChildProcess, ServerProcess, end
from ottla.cli.cluster.local_layout import (
    LAYOUT_FILE,
    LOCK_FILE,
    LocalLayout,
    parse_layout,
    planned,
)
from ottla.cli.failures import Failed, port_remedy
from ottla.coordination.ensemble import HOST, end_of_log, pyspark_class_path, server_command
from ottla.settings.config_parser import broker_config

RESTART_SECONDS: Final = 1.0
START_SECONDS: Final = 120.0
POLL_SECONDS: Final = 0.03
PORTS: Final = (12_000, 32_000)  # below those that Linux gives to outgoing connections
BROKERS_STOP_SECONDS: Final = 2.2
ZOOKEEPER_STOP_SECONDS: Final = 0.5
EARLIER_RUN_SECONDS: Final = 10.0

START_AGAIN: Final = (
    "to start it again, press Ctrl-C and start the cluster with the same --data; --restart starts "
    "dead processes again by itself"
)

Report = Callable[[str], None]


class ProcessState(NamedTuple):
    """A process of the cluster, for people."""

    name: str
    state: str  # waiting, starting, running or ended
    pid: int | None
    address: str
    broker: int | None = None


def lock(data: Path) -> int:
    """Lock the directory of a cluster; returns a file descriptor, for the children, too."""
    path = data / LOCK_FILE
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    deadline_s = time.monotonic() + EARLIER_RUN_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(descriptor, 20, 0).decode(errors="replace").strip()
            # The processes of a killed cluster end by themselves.
            if _runs(owner) or time.monotonic() >= deadline_s:
                os.close(descriptor)
                who = f" (pid {owner})" if owner else ""
                raise Failed(
                    f"{data}: its cluster is running{who}: stop it, or use another --data"
                ) from None
            time.sleep(POLL_SECONDS)
            continue
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
        return descriptor


def _runs(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:
        return True
    return True


def layout_of(
    data: Path, *, brokers: int | None, port: int | None, zookeepers: int | None
) -> LocalLayout:
    """Return the cluster to start in a locked directory, and store it there."""
    path = data / LAYOUT_FILE
    stored = parse_layout(path.read_text(), data) if path.exists() else None
    found = planned(data, stored, _free, brokers=brokers, port=port, zookeepers=zookeepers)
    new = path.with_suffix(".new")
    new.write_text(found.format())
    new.replace(path)
    return found


def check_start(
    data: Path,
    overrides: Sequence[str],
    *,
    brokers: int | None,
    port: int | None,
    zookeepers: int | None,
) -> None:
    """Raise what would fail the first start in a directory, before anything is stored there."""
    server_command(pyspark_class_path(), "")
    if (data / LAYOUT_FILE).exists():
        return
    found = planned(data, None, _free, brokers=brokers, port=port, zookeepers=zookeepers)
    check_overrides(found, overrides)
    if any(one.startswith("listeners=") for one in overrides):
        return
    for number in found.brokers:
        if _free(number) != number:
            raise Failed(f"{HOST}:{number} is already in use: {port_remedy(number)}")


def check_overrides(layout: LocalLayout, overrides: Sequence[str]) -> None:
    """Raise InvalidSettings for an override that a broker would refuse."""
    settings = [f"{name}={value}" for name, value in layout.settings(1).items()]
    broker_config(overrides=[*settings, *overrides])


def _free(wanted: int) -> int:
    """Return the wanted port if it is free, else one that no outgoing connection gets."""
    while True:
        port = wanted or random.randrange(*PORTS)
        with suppress(OSError), socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind((HOST, port))
            return port
        wanted = 0


class LocalCluster:
    """The running processes of a cluster."""

    def __init__(
        self,
        layout: LocalLayout,
        command: Sequence[str],
        overrides: Sequence[str],
        inherited: Sequence[int],
        report: Report,
        *,
        restarts: bool,
    ) -> None:
        """A cluster that is not running; `report` gets what went wrong."""
        self.layout = layout
        self._command = command
        self._overrides = overrides
        self._inherited = inherited
        self._report = report
        self._restarts = restarts
        self._class_path = pyspark_class_path()
        self._zookeepers: dict[int, ChildProcess] = {}
        self.brokers: dict[int, ChildProcess] = {}
        self._serving: set[str] = set()  # the names of processes that answered

    def processes(self) -> list[ProcessState]:
        """Return the state of every process, also of those that have not started yet."""
        found: list[ProcessState] = []
        for number, ports in enumerate(self.layout.zookeepers, 1):
            address = f"{HOST}:{ports.client}"
            found.append(self._state(f"ZooKeeper {number}", self._zookeepers.get(number), address))
        for number, port in enumerate(self.layout.brokers, 1):
            one = self._state(f"broker {number}", self.brokers.get(number), f"{HOST}:{port}")
            found.append(one._replace(broker=number))
        return found

    def _state(self, name: str, child: ChildProcess | None, address: str) -> ProcessState:
        if child is None:
            return ProcessState(name, "waiting", None, address)
        if child.code is not None:
            return ProcessState(name, "ended", None, address)
        state = "running" if name in self._serving else "starting"
        return ProcessState(name, state, child.pid, address)

    async def run(self, signals: StopSignals, ready: Callable[[], None]) -> None:
        """Run until a signal; `ready` is called when all brokers are registered."""
        stopping = asyncio.Event()
        signals.tell(asyncio.get_running_loop(), lambda number: stopping.set())
        work = asyncio.ensure_future(self._serve(ready))
        stopped = asyncio.ensure_future(stopping.wait())
        try:
            await asyncio.wait((work, stopped), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
        finally:
            for one in (work, stopped):
                one.cancel()
            await asyncio.gather(work, stopped, return_exceptions=True)
            # The second signal: no broker waits for others to take over.
            both = (signal.SIGTERM, signal.SIGINT)
            await end([*self.brokers.values()], both, BROKERS_STOP_SECONDS)
            servers = [*self._zookeepers.values()]
            await end(servers, [signal.SIGTERM], ZOOKEEPER_STOP_SECONDS)

    async def _serve(self, ready: Callable[[], None]) -> None:
        numbers = range(1, len(self.layout.zookeepers) + 1)
        await asyncio.gather(*map(self._start_zookeeper, numbers))
        numbers = range(1, len(self.layout.brokers) + 1)
        await asyncio.gather(*map(self._start_broker, numbers))
        ready()
        watched = [
            *(
                self._watch(self._zookeepers, one, self._start_zookeeper)
                for one in self._zookeepers
            ),
            *(self._watch(self.brokers, one, self._start_broker) for one in self.brokers),
        ]
        await asyncio.gather(*watched)
        raise Failed("all processes of the cluster have ended")

    async def _watch(
        self,
        children: dict[int, ChildProcess],
        number: int,
        start: Callable[[int], Awaitable[None]],
    ) -> None:
        """Report the end of a process; start it again if the user wants that."""
        while True:
            child = children[number]
            code = await child.ended()
            self._serving.discard(child.server.name)
            ended = f"{child.server.name} has ended ({_reason(code)})"
            if not self._restarts:
                self._report(f"{ended}: {START_AGAIN}")
                return
            self._report(ended)
            await asyncio.sleep(RESTART_SECONDS)
            try:
                await start(number)
            except Failed as error:
                self._report(str(error))

    async def _start_zookeeper(self, number: int) -> None:
        config, data = self.layout.server(number), self.layout.data
        server = ServerProcess(
            f"ZooKeeper {number}",
            config.command(self._class_path),
            data / f"zookeeper-{number}.log",
            data / f"zookeeper-{number}.pid",
        )
        config.write()
        child = self._zookeepers[number] = await ChildProcess.start(server, self._inherited)
        deadline_s = time.monotonic() + START_SECONDS
        while not await asyncio.to_thread(config.answers, 1.0):
            if child.code is not None or time.monotonic() >= deadline_s:
                last = (end_of_log(server.log).splitlines() or [""])[-1]
                raise Failed(f"{server.name} did not start: {last} (see {server.log})")
            await asyncio.sleep(POLL_SECONDS)
        self._serving.add(server.name)

    async def _start_broker(self, number: int) -> None:
        data = self.layout.data
        settings = [f"{name}={value}" for name, value in self.layout.settings(number).items()]
        words = [word for one in (*settings, *self._overrides) for word in ("--override", one)]
        server = ServerProcess(
            f"broker {number}",
            (*self._command, "broker", "-o", "json", *words),
            data / f"broker-{number}.log",
            data / f"broker-{number}.pid",
            says_ready=True,
        )
        child = self.brokers[number] = await ChildProcess.start(server, self._inherited)
        said = await child.line()
        if (why := _failure(said)) is not None:
            code = await child.ended()
            raise Failed(f"{server.name} did not start: {why or _reason(code)} (see {server.log})")
        self._serving.add(server.name)


def _failure(said: str) -> str | None:
    """Return why a broker did not start, from what it printed; None if it started."""
    try:
        value: Any = json.loads(said)
    except ValueError:
        return ""
    error: Mapping[str, Any] | None = value.get("error")
    return None if error is None else str(error.get("message"))


def _reason(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    with suppress(ValueError):
        return f"by {signal.Signals(-code).name}"
    return f"by signal {-code}"


def ottla_command() -> Sequence[str]:
    """Return the command that runs `ottla` as this process does."""
    script = Path(sys.argv[0]).absolute()
    if script.name != "ottla":
        script = Path(sys.executable).with_name("ottla")
    return (sys.executable, str(script))
