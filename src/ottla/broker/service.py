"""A broker as a process of its own, from its configuration to its exit code.

Invariant: it ends with 0 when it was asked to and everything is on the device, with 1 and a reason
when it cannot go on, and never leaves a directory marked as clean that is not.
"""

import asyncio
import ctypes
import logging
import os
import random
import shlex
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from ottla import __version__
from ottla.broker.event_lines import EventLines, LineFormat
from ottla.broker.gc_freeze import GcFreeze
from ottla.broker.node import Environment, Node
from ottla.broker.stop_signals import StopSignals
from ottla.clock import SystemClock
from ottla.coordination.embedded import EmbeddedStore
from ottla.errors import DiskFull, OttlaError
from ottla.ids import BrokerId, Uuid
from ottla.log.cleaner import ChildCleaner
from ottla.log.directory import read_meta
from ottla.log.files import OsDisk
from ottla.log.processes import OsProcesses
from ottla.records.kernel import COMPILED
from ottla.settings import broker
from ottla.settings.config import Config
from ottla.settings.derived import broker_id, log_dirs
from ottla.transport.network import TcpNetwork

_LOG = logging.getLogger(__name__)

COORDINATION_FILE: Final = "ottla-coordination.journal"
FIRST_BROKER: Final = BrokerId(1)
KEPT_BYTES: Final = 64 * 1024 * 1024
_M_TRIM_THRESHOLD: Final = -1  # numbers of malloc.h
_M_MMAP_THRESHOLD: Final = -3


class UncleanStop(OttlaError):
    """The broker has ended, and not everything is on the device."""

    def __init__(self, unclean: Mapping[str, BaseException]) -> None:
        super().__init__(unclean)
        self.unclean = unclean

    def __str__(self) -> str:
        why = _reasons(self.unclean)
        return f"stopped, but not cleanly: {why}. The next start checks the logs there."


def _reasons(failures: Mapping[str, BaseException]) -> str:
    return "; ".join(f"{path} ({failure})" for path, failure in failures.items())


def run(config: Config, started: Callable[[Node], None], signals: StopSignals) -> None:
    """Serve until a signal says to stop; OttlaError when that cannot be."""
    _keep_freed_memory()
    _allow_open_files()
    with GcFreeze(), asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(config, started, signals))


def _keep_freed_memory() -> None:
    """Let what one answer leaves behind serve the next one.

    Else the C library gives each megabyte of records back to the system and takes it anew, page by
    page, which costs as much as everything else that a fetch does.
    """
    with suppress(OSError, AttributeError):  # only glibc has it, and only it needs it
        tell = ctypes.CDLL(None).mallopt
        tell(_M_TRIM_THRESHOLD, KEPT_BYTES)
        tell(_M_MMAP_THRESHOLD, KEPT_BYTES // 2)


def _allow_open_files() -> None:
    """Take as many as the system gives: every connection and every segment needs some."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Uvloop where it is; the loop of Python elsewhere."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _serve(config: Config, started: Callable[[Node], None], signals: StopSignals) -> None:
    if config[broker.ZOOKEEPER_CONNECT] is not None:
        raise OttlaError("zookeeper.connect: a cluster of several brokers is not served yet")
    if not COMPILED:
        _LOG.warning("the kernel is not compiled: records cost about 50 times the CPU")
    _LOG.info("broker starting", {"version": __version__, "pid": os.getpid()})
    for notice in config.notices:
        _LOG.warning("setting", {"name": notice.name, "note": str(notice)})
    stopping = asyncio.Event()

    def stop(number: signal.Signals) -> None:
        _LOG.info("asked to stop", {"signal": number.name})
        stopping.set()

    signals.tell(asyncio.get_running_loop(), stop)
    if stopping.is_set():  # and nothing has begun
        _LOG.info("broker stopped")
        return
    clock, disk = SystemClock(), OsDisk()
    store: EmbeddedStore | None = None
    try:
        first = os.path.abspath(log_dirs(config)[0])
        await disk.blocking(lambda: _refuse_strange(disk, log_dirs(config), first))
        store = await disk.blocking(
            lambda: EmbeddedStore.open(disk, f"{first}/{COORDINATION_FILE}", clock)
        )
        around = Environment(
            clock,
            disk,
            TcpNetwork(),
            store,
            ChildCleaner(OsProcesses()),
            random.SystemRandom().random,
            lambda: Uuid(os.urandom(16)),
        )
        async with Node(config, _node_id(config, disk, first), around, stopping.set) as node:
            started(node)
            await stopping.wait()
            has_failed = node.given_up  # and not only while it stopped
        if has_failed:
            raise OttlaError(f"all data directories have failed: {_reasons(node.unclean)}")
        if node.unclean:
            raise UncleanStop(node.unclean)
        _LOG.info("broker stopped")
    except DiskFull as full:
        raise OttlaError(
            f"{full}. A broker that starts for the first time needs some room: make some, or let "
            f"log.dirs name a directory on another disk"
        ) from full
    finally:
        if store is not None:
            await store.close()
        disk.close()


def _refuse_strange(disk: OsDisk, directories: Sequence[str], first: str) -> None:
    """Refuse what another one has kept its data in, and leave nothing there."""
    if disk.exists(f"{first}/{COORDINATION_FILE}"):
        return
    for path in directories:
        meta = None
        with suppress(OSError):  # what is wrong with it is told when it is taken
            meta = read_meta(disk, path)
        if meta is not None and meta.cluster_id is not None:
            raise OttlaError(
                f"{path} holds the data of a broker of cluster {meta.cluster_id}, and {first} has "
                f"no {COORDINATION_FILE}. If it is Apache Kafka's, stopped and alone, `ottla log "
                f"adopt {shlex.join(directories)}` takes it over; else let log.dirs name another "
                f"directory"
            )


def _node_id(config: Config, disk: OsDisk, first: str) -> BrokerId:
    """What the settings say, or else the data directory, or else the first there is."""
    given = broker_id(config)
    if given is not None:
        return BrokerId(given)
    meta = read_meta(disk, first)
    return FIRST_BROKER if meta is None or meta.node_id is None else meta.node_id


def log_to_stderr(form: LineFormat = LineFormat.TEXT, level: str = "info") -> None:
    """One line for each event from this level on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(EventLines(form))
    logging.getLogger("ottla").setLevel(level.upper())
    logging.getLogger().addHandler(handler)
