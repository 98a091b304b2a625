"""Facts about a machine and a cluster, as far as a broker and its clients depend on them.

Invariant: a fact says what was found and not what to think of it; None is what could not be found
out.
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
    """A port of this machine that a broker takes by default."""

    number: int
    use: str
    is_free: bool
    occupant: str | None = None
    is_ours: bool = False
    """Whether what listens there answers as a broker, or its metrics, would."""


@dataclass(frozen=True, slots=True)
class DiskFacts:
    """The place of the data, or the nearest folder above that is there."""

    folder: str
    nearest: str
    free_bytes: int
    total_bytes: int
    why_not_writable: str | None = None


@dataclass(frozen=True, slots=True)
class LimitFacts:
    """How many files a process may open; None is no limit."""

    now: int | None
    most: int | None


@dataclass(frozen=True, slots=True)
class ClockFacts:
    """The clock of this machine."""

    now_ms: int
    installed_ms: int
    """When Ottla's files were written, which is past."""

    synchronized: bool | None = None


@dataclass(frozen=True, slots=True)
class AddressFacts:
    """Where a broker tells clients to come to."""

    broker: int
    host: str
    port: int
    why_not: str | None = None
    """Why nobody is reached there from here."""

    is_other: bool = False
    """Whether another cluster answers there."""


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """The cluster that commands would ask."""

    servers: str
    chosen: bool
    """Whether somebody said that it is there."""

    why_not: str | None = None
    addresses: Sequence[AddressFacts] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """All of it."""

    python: PythonFacts
    kernel: KernelFacts
    java: JavaFacts
    ports: Sequence[PortFacts]
    disk: DiskFacts
    limits: LimitFacts
    clock: ClockFacts
    cluster: ClusterFacts
