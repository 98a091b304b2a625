"""Facts about a machine and a cluster.

Invariant: a fact says what was found, not how to judge it; None is unknown.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PythonFacts:
    """The interpreter."""

    version: tuple[int, int, int]
    implementation: str
    asserts: bool
    """False with -O or PYTHONOPTIMIZE."""


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """The kernel that would run."""

    compiled: bool
    file: str


@dataclass(frozen=True, slots=True)
class JavaFacts:
    """The Java that Spark would start."""

    version: int | None
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """What a broker, or a metrics page, reports about itself."""

    cluster: str | None = None
    """The cluster id."""

    broker: int | None = None
    """The broker id."""

    def differs(self, other: "BrokerIdentity") -> bool:
        """Whether the two are certainly different brokers."""
        return any(
            mine is not None and theirs is not None and mine != theirs
            for mine, theirs in ((self.cluster, other.cluster), (self.broker, other.broker))
        )

    def __str__(self) -> str:
        broker = "a broker" if self.broker is None else f"broker {self.broker}"
        return f"{broker} of cluster {self.cluster}" if self.cluster else broker


@dataclass(frozen=True, slots=True)
class PortFacts:
    """A port of this machine that a broker uses by default."""

    number: int
    is_free: bool
    occupant: str | None = None
    identity: BrokerIdentity | None = None
    """The broker that responds there, or whose metrics page does."""


@dataclass(frozen=True, slots=True)
class DiskFacts:
    """The data directory, or its nearest existing parent."""

    folder: str
    nearest: str
    free_bytes: int
    total_bytes: int
    why_not_writable: str | None = None


@dataclass(frozen=True, slots=True)
class LimitFacts:
    """The limit of open files; None for unlimited."""

    now: int | None
    most: int | None


@dataclass(frozen=True, slots=True)
class ClockFacts:
    """The clock of this machine."""

    now_ms: int
    installed_ms: int
    """When Ottla's files were written, which is in the past."""

    synchronized: bool | None = None


@dataclass(frozen=True, slots=True)
class AddressFacts:
    """An advertised address of a broker."""

    broker: int
    host: str
    port: int
    why_not: str | None = None
    """Why it cannot be reached from here."""

    is_other: bool = False
    """Whether another cluster responds there."""


@dataclass(frozen=True, slots=True)
class LogDirFacts:
    """A log directory of a broker; None is a size that the broker does not return."""

    broker: int
    path: str
    free_bytes: int | None = None
    total_bytes: int | None = None
    why_not: str | None = None
    """Why the broker cannot use it."""


@dataclass(frozen=True, slots=True)
class SkewFacts:
    """A partition with more than twice the mean of its topic."""

    partition: str
    factor: float
    """Its bytes relative to the mean."""

    hot_keys: str = ""
    """The keys of many of its newest records, in words; empty if there are none."""


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """The cluster that commands would use."""

    servers: str
    chosen: bool
    """Whether its address was configured."""

    why_not: str | None = None
    addresses: Sequence[AddressFacts] = ()
    id: str | None = None
    """The cluster id."""

    skewed: Sequence[SkewFacts] = ()
    log_dirs: Sequence[LogDirFacts] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """All facts."""

    python: PythonFacts
    kernel: KernelFacts
    java: JavaFacts
    broker_port: PortFacts
    metrics_port: PortFacts
    disk: DiskFacts | None
    """None if the cluster is on other machines."""

    limits: LimitFacts
    clock: ClockFacts
    cluster: ClusterFacts
