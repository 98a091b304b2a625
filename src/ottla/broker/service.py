"""A broker as a process: from its config to its exit code.

Invariant: the exit code is 0 after a requested stop with everything flushed, and 1 with a reason
otherwise. A directory is marked as cleanly shut down only if it is.
"""

import asyncio
import ctypes
import logging
import os
import random
import shlex
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from ottla import __version__
from ottla.broker.effective_config import log_notice
from ottla.broker.event_lines import EventLines, LineFormat
from ottla.broker.gc_freeze import GcFreeze
from ottla.broker.node import Environment, Node, StartStop, StartStopped
from ottla.broker.process_limits import (
    ProcessLimits,
    memory_bytes,
    open_files_max,
    raise_open_file_limit,
)
from ottla.broker.stop_signals import StopSignals
from ottla.clock import Clock, SystemClock
from ottla.controller.lease import generate_broker_id
from ottla.coordination.embedded import EmbeddedStore
from ottla.coordination.session import Coordination, Listener, Session
from ottla.coordination.zookeeper import ZooKeeper
from ottla.errors import DiskFull, OttlaError
from ottla.ids import BrokerId, Uuid
from ottla.log.checkpoints import MetaProperties
from ottla.log.cleaner.child_processes import OsProcesses
from ottla.log.cleaner.cleaner_runners import ChildCleaner
from ottla.log.directory import count_partitions, read_meta
from ottla.log.files import OsDisk
from ottla.log.names import META_PROPERTIES
from ottla.records import COMPILED
from ottla.settings import broker
from ottla.settings.config import Config
from ottla.settings.derived import broker_id, log_dirs, zookeeper_connection_timeout_ms
from ottla.transport.network import TcpNetwork

_LOG = logging.getLogger(__name__)

COORDINATION_FILE: Final = "ottla-coordination.journal"
FIRST_BROKER: Final = BrokerId(1)
KEPT_BYTES: Final = 64 * 1024 * 1024
_M_TRIM_THRESHOLD: Final = -1  # from malloc.h
_M_MMAP_THRESHOLD: Final = -3


class UncleanStop(OttlaError):
    """The broker has stopped, and not everything is flushed."""

    def __init__(self, unclean: Mapping[str, BaseException]) -> None:
        super().__init__(unclean)
        self.unclean = unclean

    def __str__(self) -> str:
        why = _reasons(self.unclean)
        return f"stopped, but not cleanly: {why}. The next start recovers the logs there."


def _reasons(failures: Mapping[str, BaseException]) -> str:
    return "; ".join(f"{path} ({failure})" for path, failure in failures.items())


def run(config: Config, started: Callable[[Node], None], signals: StopSignals) -> None:
    """Serve until a signal arrives; raises OttlaError if the broker cannot start or continue."""
    _keep_freed_memory()
    raise_open_file_limit()
    with GcFreeze(), asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(config, started, signals))


def _keep_freed_memory() -> None:
    """Let malloc keep freed memory for the next response.

    Otherwise glibc returns every megabyte to the system and faults it in again page by page, which
    costs as much as the rest of a fetch.
    """
    with suppress(OSError, AttributeError):  # other C libraries do not have it and do not need it
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(_M_MMAP_THRESHOLD, KEPT_BYTES // 2)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's factory, or None for asyncio's loop."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _serve(config: Config, started: Callable[[Node], None], signals: StopSignals) -> None:
    if not COMPILED:
        _LOG.warning("extension not compiled: records take about 50 times the CPU")
    _LOG.info("broker starting", {"version": __version__, "pid": os.getpid()})
    for notice in config.notices:
        log_notice(notice)
    stopping, start_stop, node = asyncio.Event(), StartStop(), None

    def stop(number: signal.Signals) -> None:
        if stopping.is_set() and node is not None:  # a second signal
            _LOG.info("stop without hand-over requested", {"signal": number.name})
            node.hurry()
        else:
            _LOG.info("stop requested", {"signal": number.name})
            stopping.set()
            start_stop.request()

    signals.tell(asyncio.get_running_loop(), stop)
    if stopping.is_set():  # a signal arrived before the start
        _LOG.info("broker stopped")
        return
    clock, disk = SystemClock(), OsDisk(open_files_max=open_files_max)
    first = os.path.abspath(log_dirs(config)[0])
    store = _Store(disk, f"{first}/{COORDINATION_FILE}", clock)
    try:
        await disk.blocking(lambda: _warn_of_exposed(log_dirs(config)))
        metas = await disk.blocking(lambda: _metas(disk, log_dirs(config)))
        cluster_id = None
        coordination: Coordination = store
        connect = config[broker.ZOOKEEPER_CONNECT]
        if connect is None:
            await disk.blocking(lambda: _refuse_foreign(disk, log_dirs(config), first))
            is_first_start = not await store.open_existing()
        else:
            cluster_id = next((one.cluster_id for one in metas if one.cluster_id), None)
            is_first_start = cluster_id is None
            await disk.blocking(
                lambda: _refuse_embedded(disk, log_dirs(config), is_known=not is_first_start)
            )
            origin, name = config.origin(broker.ZOOKEEPER_CONNECT), broker.ZOOKEEPER_CONNECT.name
            what = "line" if origin and origin.line else "setting"
            coordination = ZooKeeper(
                connect,
                session_timeout_ms=config[broker.ZOOKEEPER_SESSION_TIMEOUT_MS],
                connection_timeout_ms=zookeeper_connection_timeout_ms(config),
                creates_root=is_first_start,
                source=f"{origin}: {name}" if origin else name,
                remedy=f"start ZooKeeper, correct this {what}, or remove it to run a single broker "
                "without ZooKeeper",
            )
        environment = Environment(
            clock,
            disk,
            TcpNetwork(),
            coordination,
            ChildCleaner(OsProcesses()),
            random.SystemRandom().random,
            lambda: Uuid(os.urandom(16)),
            os.urandom,
            ProcessLimits(open_files_max, lambda: disk.open_files, memory_bytes()),
            socket.gethostname(),
            cluster_id,
        )
        node_id = await start_stop.wait(_node_id(config, metas, coordination))
        node = Node(config, node_id, environment, stopping.set, start_stop)
        if is_first_start:
            await node.bind()
        async with node:
            started(node)
            await stopping.wait()
            has_failed = node.given_up  # before the stop, not only during it
        if has_failed:
            raise OttlaError(f"all data directories have failed: {_reasons(node.unclean)}")
        if node.unclean:
            raise UncleanStop(node.unclean)
        _LOG.info("broker stopped")
    except StartStopped:
        _LOG.info("broker stopped")
    except DiskFull as full:
        raise OttlaError(
            f"{full}. The first start needs disk space: free some, or set log.dirs to a directory "
            f"on another disk"
        ) from full
    finally:
        await store.close()
        disk.close()


def _warn_of_exposed(directories: Sequence[str]) -> None:
    """Log the data directories that every user of the machine can enter or read.

    The broker creates directories that only its user and group can read, but changes no others.
    """
    for path in directories:
        with suppress(OSError):  # it does not exist yet, or opening it will report the error
            if (mode := os.stat(path).st_mode & 0o777) & 0o007:
                about = {"directory": path, "mode": f"{mode:o}"}
                remedy = f"chmod -R o= {shlex.quote(path)}"
                _LOG.warning("data directory exposed", about | {"remedy": remedy})


class _Store:
    """The embedded store of the broker, created when the broker connects to it.

    A first start binds its addresses before that, and leaves no directory behind if it fails there.
    An existing store is opened first: if another broker has it, the user must choose another
    directory, and not only another port.
    """

    def __init__(self, disk: OsDisk, path: str, clock: Clock) -> None:
        self._disk = disk
        self._path = path
        self._clock = clock
        self._opened: EmbeddedStore | None = None

    async def open_existing(self) -> bool:
        """Open the store and return True, if its file exists. Raises StoreInUse."""
        exists = await self._disk.blocking(lambda: self._disk.exists(self._path))
        if exists:
            await self._open()
        return exists

    async def connect(self, listener: Listener) -> Session:
        """Return a new session; creates the store if necessary."""
        return await (self._opened or await self._open()).connect(listener)

    async def close(self) -> None:
        """Close the store if it is open."""
        if self._opened is not None:
            await self._opened.close()

    async def _open(self) -> EmbeddedStore:
        self._opened = await self._disk.blocking(
            lambda: EmbeddedStore.open(self._disk, self._path, self._clock)
        )
        return self._opened


def _refuse_foreign(disk: OsDisk, directories: Sequence[str], first: str) -> None:
    """Refuse data directories of another broker or cluster, and write nothing there."""
    if disk.exists(f"{first}/{COORDINATION_FILE}"):
        return
    for path in directories:
        meta, partitions = None, 0
        with suppress(OSError):  # opening the directory will report the error
            meta = read_meta(disk, path)
            partitions = count_partitions(disk, path)
        if partitions and (meta is None or meta.cluster_id is None):
            raise OttlaError(
                f"{path} holds partitions of an unknown cluster: {first} has no "
                f"{COORDINATION_FILE}, and {path} has no {META_PROPERTIES} with a cluster.id. "
                f"Restore these files from a backup, or set log.dirs to another directory"
            )
        if meta is not None and meta.cluster_id is not None:
            raise OttlaError(
                f"{path} holds data of a broker of cluster {meta.cluster_id}, and {first} has no "
                f"{COORDINATION_FILE}. Restore this file from a backup. To take over the data of a "
                f"single Kafka broker, or of an Ottla broker that lost this file, run `ottla log "
                f"adopt {shlex.join(directories)}`. If the cluster uses ZooKeeper, set "
                f"zookeeper.connect. Otherwise set log.dirs to another directory"
            )


def _refuse_embedded(disk: OsDisk, directories: Sequence[str], *, is_known: bool) -> None:
    """Refuse data directories whose topics ZooKeeper cannot have, and write nothing there.

    The topics of a broker without ZooKeeper are in its own store. `is_known` says whether a
    directory names its cluster.
    """
    for path in directories:
        if disk.exists(f"{path}/{COORDINATION_FILE}"):
            raise OttlaError(
                f"{path} holds the topics of a single broker without ZooKeeper (it has "
                f"{COORDINATION_FILE}): move them with `ottla cluster adopt "
                f"{shlex.quote(path)} --zookeeper …`, remove zookeeper.connect, or set log.dirs to "
                f"another directory"
            )
        partitions = 0
        with suppress(OSError):  # opening the directory will report the error
            partitions = count_partitions(disk, path)
        if partitions and not is_known:
            raise OttlaError(
                f"{path} holds partitions of an unknown cluster: it has no {META_PROPERTIES} with "
                f"a cluster.id. Restore this file from a backup, or set log.dirs to another "
                f"directory"
            )


def _metas(disk: OsDisk, directories: Sequence[str]) -> list[MetaProperties]:
    """Return what the data directories say about their broker; opening them reports errors."""
    found: list[MetaProperties] = []
    for path in directories:
        with suppress(OSError):
            if (meta := read_meta(disk, path)) is not None:
                found.append(meta)
    return found


async def _node_id(
    config: Config, metas: Sequence[MetaProperties], coordination: Coordination
) -> BrokerId:
    """Return the node id of the config, else of a data directory, else a new one."""
    given = broker_id(config)
    if given is not None:
        return BrokerId(given)
    for meta in metas:
        if meta.node_id is not None:
            return meta.node_id
    if config[broker.ZOOKEEPER_CONNECT] is None:
        return FIRST_BROKER
    if not config[broker.BROKER_ID_GENERATION_ENABLE]:
        raise OttlaError("the broker has no id: set node.id, or broker.id.generation.enable=true")
    session = await coordination.connect(lambda state: None)
    try:
        return await generate_broker_id(session, config[broker.RESERVED_BROKER_MAX_ID])
    finally:
        await session.close()


def log_to_stderr(form: LineFormat = LineFormat.TEXT, level: str = "info") -> None:
    """Log one line per event to stderr, from this level on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(EventLines(form))
    logging.getLogger("ottla").setLevel(level.upper())
    logging.getLogger().addHandler(handler)
