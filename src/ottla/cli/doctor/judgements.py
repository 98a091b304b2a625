"""Judges facts and names remedies.

Invariant: a judgement is a function of its facts. A problem keeps a broker or client from working;
a warning makes it worse or limits how long it works. Both name a remedy.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ottla.cli.doctor.facts import (
    AddressFacts,
    BrokerIdentity,
    ClockFacts,
    ClusterFacts,
    DiskFacts,
    Facts,
    JavaFacts,
    KernelFacts,
    LimitFacts,
    LogDirFacts,
    PortFacts,
    PythonFacts,
    SkewFacts,
)
from ottla.transport.failures import is_loopback

PYTHON_MIN: Final = (3, 11)
FILES_MIN: Final = 1024
"""With fewer, a broker with some hundred partitions, three open files each, stops working."""

FILES_GOOD: Final = 65_536
ROOM_MIN: Final = 256 * 1024 * 1024
"""Less than one segment plus its preallocated indexes."""

ROOM_GOOD: Final = 2 * 1024 * 1024 * 1024
ROOM_GOOD_SHARE: Final = 0.05
CLOCK_BEHIND_MS: Final = 24 * 3600 * 1000
"""A wrong time zone moves a clock by less."""


class Grade(StrEnum):
    """The severity."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


OK, WARNING, PROBLEM = Grade


@dataclass(frozen=True, slots=True)
class Judgement:
    """The judgement of one fact."""

    about: str
    grade: Grade
    found: str
    advice: str = ""


def judged(facts: Facts) -> Iterator[Judgement]:
    """Return all judgements, in the order in which things are needed."""
    yield python(facts.python)
    yield kernel(facts.kernel)
    yield java(facts.java)
    yield broker_port(facts.broker_port, facts.cluster)
    yield metrics_port(facts.metrics_port, facts.broker_port)
    if facts.disk is not None:
        yield writable(facts.disk)
        if facts.disk.total_bytes:  # /proc and similar file systems report no size
            yield room(facts.disk)
    yield open_files(facts.limits)
    yield clock(facts.clock)
    yield cluster(facts.cluster)
    for one in facts.cluster.addresses:
        yield listener(one, facts.cluster.servers)
    for one in facts.cluster.log_dirs:
        if (found := log_dir(one)).grade is not OK:
            yield found
    for one in facts.cluster.skewed:
        yield skew(one)


def python(facts: PythonFacts) -> Judgement:
    """Check the version and assertions."""
    found = f"{facts.implementation} {'.'.join(map(str, facts.version))}"
    if facts.version[:2] < PYTHON_MIN:
        needed = ".".join(map(str, PYTHON_MIN))
        return Judgement("python", PROBLEM, found, f"install Python {needed} or newer")
    if not facts.asserts:
        advice = "run Python without -O and PYTHONOPTIMIZE: the broker relies on assertions"
        return Judgement("python", PROBLEM, f"{found} without assertions", advice)
    return Judgement("python", OK, found)


def kernel(facts: KernelFacts) -> Judgement:
    """Check whether it is compiled."""
    if facts.compiled:
        return Judgement("extension", OK, "compiled")
    return Judgement(
        "extension",
        WARNING,
        "not compiled: records take about 50 times the CPU",
        "install a C compiler and Python's headers, then reinstall Ottla",
    )


def java(facts: JavaFacts) -> Judgement:
    """Check Java, which only Spark needs."""
    if facts.version is not None:
        return Judgement("java", OK, f"Java {facts.version}")
    return Judgement("java", WARNING, facts.why_not, "required only for Spark pipelines")


def broker_port(facts: PortFacts, judged_cluster: ClusterFacts) -> Judgement:
    """Check whether the port is free or in use by a broker, which may be of another cluster."""
    about = f"port {facts.number}"
    if facts.is_free:
        return Judgement(about, OK, "free for a broker")
    who = facts.occupant or "another process"
    if facts.identity is None:
        advice = "stop it, or choose another port: `ottla dev --port N`"
        return Judgement(about, WARNING, f"in use by {who}, which is not a broker", advice)
    found = f"in use by {who}, which serves {facts.identity}"
    if facts.identity.differs(BrokerIdentity(judged_cluster.id)):
        found += f"; that is not the cluster at {judged_cluster.servers}"
    return Judgement(about, OK, found)


def metrics_port(facts: PortFacts, of: PortFacts) -> Judgement:
    """Check whether the port is free or serves the metrics of the broker at another port."""
    about = f"port {facts.number}"
    if facts.is_free:
        return Judgement(about, OK, "free for the metrics of a broker")
    who = facts.occupant or "another process"
    advice = (
        "stop it, or choose another port: `--override ottla.metrics.listener=127.0.0.1:N`, and "
        "check that port with `--metrics-port N`"
    )
    if facts.identity is None:
        found = f"in use by {who}, which does not serve the metrics of a broker"
        return Judgement(about, WARNING, found, advice)
    found = f"in use by {who}, which serves the metrics of {facts.identity}"
    if of.identity is None:
        return Judgement(about, WARNING, f"{found}; no broker responds on port {of.number}", advice)
    if facts.identity.differs(of.identity):
        return Judgement(about, WARNING, f"{found}, not of the one on port {of.number}", advice)
    return Judgement(about, OK, found)


def writable(facts: DiskFacts) -> Judgement:
    """Check whether the directory is writable."""
    if facts.why_not_writable is None:
        return Judgement("data directory", OK, f"{facts.folder} is writable")
    return Judgement(
        "data directory",
        PROBLEM,
        f"{facts.nearest} is not writable: {facts.why_not_writable}",
        "set log.dirs or `ottla dev --data DIR` to a directory that this user may write",
    )


def room(facts: DiskFacts) -> Judgement:
    """Check the free disk space."""
    return _room("disk", facts.nearest, facts.free_bytes, facts.total_bytes)


def log_dir(facts: LogDirFacts) -> Judgement:
    """Check a log directory of a broker."""
    about = f"broker {facts.broker}"
    if facts.why_not is not None:
        advice = "repair the disk, then restart the broker"
        return Judgement(about, PROBLEM, f"{facts.path}: {facts.why_not}", advice)
    if facts.free_bytes is None or facts.total_bytes is None:
        return Judgement(about, OK, f"{facts.path}: the free space is unknown")
    return _room(about, facts.path, facts.free_bytes, facts.total_bytes)


def _room(about: str, where: str, free_bytes: int, total_bytes: int) -> Judgement:
    found = f"{size(free_bytes)} of {size(total_bytes)} free at {where}"
    if free_bytes >= max(ROOM_GOOD, total_bytes * ROOM_GOOD_SHARE):
        return Judgement(about, OK, found)
    return Judgement(
        about,
        PROBLEM if free_bytes < ROOM_MIN else WARNING,
        found,
        "free disk space, lower the retention of topics (retention.ms), or move log.dirs to "
        "another disk",
    )


def open_files(facts: LimitFacts) -> Judgement:
    """Check the hard limit, to which a broker raises its own."""
    if facts.most is None:
        return Judgement("open files", OK, "unlimited")
    found = f"at most {facts.most} per process"
    advice = (
        f"raise the limit: LimitNOFILE={FILES_GOOD} in the service, or as root `ulimit -Hn "
        f"{FILES_GOOD}`"
    )
    if facts.most < FILES_MIN:
        return Judgement("open files", PROBLEM, found, advice)
    if facts.most < FILES_GOOD:
        return Judgement("open files", WARNING, found, advice)
    return Judgement("open files", OK, found)


def clock(facts: ClockFacts) -> Judgement:
    """Check the clock, which timestamps and retention depend on."""
    if facts.now_ms < facts.installed_ms - CLOCK_BEHIND_MS:
        return Judgement(
            "clock",
            PROBLEM,
            "earlier than the installation of Ottla",
            "set the clock: retention uses record timestamps",
        )
    if facts.synchronized is False:
        return Judgement(
            "clock",
            WARNING,
            "not synchronized, as far as the system reports",
            "run chrony or systemd-timesyncd; in a container, on the host",
        )
    return Judgement("clock", OK, "synchronized" if facts.synchronized else "plausible")


def cluster(facts: ClusterFacts) -> Judgement:
    """Check whether the cluster responds."""
    about = "cluster"
    if facts.why_not is None:
        count = len(facts.addresses)
        brokers = "1 broker" if count == 1 else f"{count} brokers"
        return Judgement(about, OK, f"{facts.servers} responds, with {brokers}")
    return Judgement(
        about,
        PROBLEM if facts.chosen else WARNING,
        facts.why_not,
        "start the broker, or correct the address (`-b HOST:PORT` or `ottla profile`)"
        if facts.chosen
        else "start a broker on this machine with `ottla dev`",
    )


def listener(facts: AddressFacts, servers: str) -> Judgement:
    """Check whether clients can reach an advertised address."""
    about = f"broker {facts.broker}"
    where = f"{facts.host}:{facts.port}"
    advice = "set its advertised.listeners to an address that clients can reach, and open the port"
    if facts.why_not is not None:
        found = f"it advertises {where}: {facts.why_not}"
        return Judgement(about, PROBLEM, found, advice)
    if facts.is_other:
        found = f"it advertises {where}, where another cluster responds"
        return Judgement(about, PROBLEM, found, advice)
    if is_loopback(facts.host) and not all(map(is_loopback, hosts(servers))):
        found = f"it advertises {where}, which clients on other machines cannot reach"
        return Judgement(about, WARNING, found, advice)
    return Judgement(about, OK, f"reachable at {where}")


def skew(facts: SkewFacts) -> Judgement:
    """Warn of a partition that is much larger than the others of its topic."""
    found = f"{facts.factor:.1f} x the mean size of its topic's partitions"
    return Judgement(
        f"partition {facts.partition}",
        WARNING,
        f"{found}; {facts.hot_keys}" if facts.hot_keys else found,
        "choose keys that spread the records, for example with a suffix for frequent ones",
    )


def hosts(servers: str) -> list[str]:
    """Return the hosts of a list of addresses."""
    found: list[str] = []
    for one in servers.split(","):
        host, colon, port_text = one.strip().rpartition(":")
        found.append((host if colon and port_text.isdigit() else one.strip()).strip("[]"))
    return found


def size(count: int) -> str:
    """Format bytes in a readable unit."""
    number = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "bytes" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"
