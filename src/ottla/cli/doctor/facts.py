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
class PortFacts:
    """A port that a broker uses by default."""

    number: int
    use: str
    is_free: bool
    occupant: str | None = None
    is_ours: bool = False
    """Whether a broker, or its metrics page, responds there."""


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
class ClusterFacts:
    """The cluster that commands would use."""

    servers: str
    chosen: bool
    """Whether its address was configured."""

    why_not: str | None = None
    addresses: Sequence[AddressFacts] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """All facts."""

    python: PythonFacts
    kernel: KernelFacts
    java: JavaFacts
    ports: Sequence[PortFacts]
    disk: DiskFacts
    limits: LimitFacts
    clock: ClockFacts
    cluster: ClusterFacts
