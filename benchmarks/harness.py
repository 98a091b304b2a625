"""Timing, tables and result files for all benchmark scripts.

Invariant: the candidates of a case run in one process and take turns in each round, with the order
reversed every other round, so that noise affects all equally. A figure is always stored with the
machine and the commit on which it was measured.

A script builds its cases and passes them to `run`:

    run(__file__, "Who packs faster?", [Case("zstd", {"ottla": ours, "peer": theirs}, 1.0)], "MB")
"""

import argparse
import gc
import importlib.metadata
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

OURS = "ottla"
PIPED_WIDTH = 130  # for a file or a pipe

Candidate = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Case:
    """One row: the same work, done by each candidate.

    With `work`, the amount per call, figures are amounts per second; otherwise they are
    microseconds per call. `target_ratio` is the target speed relative to the fastest peer,
    `target_rate` the target amount per second, and `target_more_us` the microseconds per call that
    we may take more than that peer.
    """

    name: str
    candidates: Mapping[str, Candidate]
    work: float | None = None
    target_ratio: float | None = None
    target_rate: float | None = None
    target_more_us: float | None = None


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds per call, over all rounds."""

    best_s: float
    median_s: float
    rounds: int
    calls_per_round: int


@dataclass(frozen=True, slots=True)
class Effort:
    """The duration of a measurement."""

    rounds: int
    round_s: float


FULL = Effort(rounds=15, round_s=0.05)
QUICK = Effort(rounds=3, round_s=0.01)


def measure(candidates: Mapping[str, Candidate], effort: Effort = FULL) -> dict[str, Timing]:
    """Time each candidate, one call in turn, for several rounds."""
    calls = {name: _calls_in(candidate, effort.round_s) for name, candidate in candidates.items()}
    samples: dict[str, list[float]] = {name: [] for name in candidates}
    order = list(candidates)
    for _ in range(effort.rounds):
        for name in order:
            samples[name].append(_seconds(candidates[name], calls[name]) / calls[name])
        order.reverse()
    return {
        name: Timing(min(taken), statistics.median(taken), effort.rounds, calls[name])
        for name, taken in samples.items()
    }


def _calls_in(candidate: Candidate, round_s: float) -> int:
    candidate()  # warm-up: imports and caches
    calls = 1
    while (taken := _seconds(candidate, calls)) < round_s:
        calls = max(2 * calls, int(calls * round_s / max(taken, 1e-9)))
    return calls


def _seconds(candidate: Candidate, calls: int) -> float:
    turns = range(calls)
    collecting = gc.isenabled()
    gc.disable()
    try:
        start = time.perf_counter()
        for _ in turns:
            candidate()
        return time.perf_counter() - start
    finally:
        if collecting:
            gc.enable()


@dataclass(frozen=True, slots=True)
class Row:
    """A case with its timings."""

    case: Case
    timings: Mapping[str, Timing]

    def figure(self, name: str) -> float | None:
        """Amount per second or microseconds per call; None if there is no such candidate."""
        if name not in self.timings:
            return None
        best_s = self.timings[name].best_s
        return best_s * 1e6 if self.case.work is None else self.case.work / best_s

    @property
    def ratio(self) -> float | None:
        """Our speed relative to the fastest peer."""
        peer_s = self._peer_s
        return None if peer_s is None else peer_s / self.timings[OURS].best_s

    @property
    def more_us(self) -> float | None:
        """The microseconds per call that we take more than the fastest peer."""
        peer_s = self._peer_s
        return None if peer_s is None else (self.timings[OURS].best_s - peer_s) * 1e6

    @property
    def _peer_s(self) -> float | None:
        """The seconds of the fastest peer; None without a peer."""
        peers = [timing.best_s for name, timing in self.timings.items() if name != OURS]
        return min(peers) if peers and OURS in self.timings else None

    @property
    def met(self) -> bool | None:
        """Whether every target is reached; None without a target."""
        reached: list[bool] = []
        if self.case.target_ratio is not None and self.ratio is not None:
            reached.append(self.ratio >= self.case.target_ratio)
        if self.case.target_rate is not None and self.case.work is not None:
            reached.append(self.case.work / self.timings[OURS].best_s >= self.case.target_rate)
        if self.case.target_more_us is not None and self.more_us is not None:
            reached.append(self.more_us <= self.case.target_more_us)
        return all(reached) if reached else None


def run(
    script: str,
    question: str,
    cases: Iterable[Case],
    unit: str,
    distributions: Sequence[str] = (),
) -> None:
    """Measure all cases, print the table and write the figures.

    `unit` is the unit of `Case.work`; the versions of the packages in `distributions` are stored
    with the figures.
    """
    parser = argparse.ArgumentParser(description=question)
    parser.add_argument("--quick", action="store_true", help="a short run, for a first look")
    quick: bool = parser.parse_args().quick
    console = _console()
    rows: list[Row] = []
    for case in cases:
        with console.status(case.name):
            rows.append(Row(case, measure(case.candidates, QUICK if quick else FULL)))
    report(script, question, rows, unit, distributions, quick=quick)


def report(
    script: str,
    question: str,
    rows: Sequence[Row],
    unit: str,
    distributions: Sequence[str] = (),
    *,
    quick: bool,
) -> None:
    """Print the table and write the figures of rows that are already measured."""
    console = _console()
    console.print(_table(question, rows, unit))
    path = _write(Path(script), question, rows, unit, distributions, quick=quick)
    console.print(f"figures: {path}", soft_wrap=True)


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else PIPED_WIDTH)


def _table(question: str, rows: Sequence[Row], unit: str) -> Table:
    names = list(dict.fromkeys([OURS, *(name for row in rows for name in row.timings)]))
    timed = all(row.case.work is None for row in rows)
    caption = f"{'µs a call' if timed else f'{unit}/s'}, best round; ratio: to the fastest peer"
    table = Table(title=question, caption=caption)
    table.add_column("case")
    for name in [*names, "ratio", "target", "met?"]:
        table.add_column(name, justify="right")
    for row in rows:
        goals = (
            f"{row.case.target_ratio:g} x" if row.case.target_ratio is not None else "",
            f"{row.case.target_rate:,.4g}" if row.case.target_rate is not None else "",
            f"+{row.case.target_more_us:g} µs" if row.case.target_more_us is not None else "",
        )
        table.add_row(
            row.case.name,
            *(_number(row.figure(name)) for name in names),
            "" if row.ratio is None else f"{row.ratio:.2f} x",
            ", ".join(filter(None, goals)),
            {True: "yes", False: "[bold]no[/bold]", None: ""}[row.met],
        )
    return table


def _number(figure: float | None) -> str:
    if figure is None:
        return "-"
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.3g}"


def _write(
    script: Path,
    question: str,
    rows: Sequence[Row],
    unit: str,
    distributions: Sequence[str],
    *,
    quick: bool,
) -> Path:
    report: dict[str, object] = {
        "question": question,
        "quick": quick,
        "versions": {name: importlib.metadata.version(name) for name in distributions},
        "unit": unit,
        "cases": [
            {
                "case": row.case.name,
                "work": row.case.work,
                "target_ratio": row.case.target_ratio,
                "target_rate": row.case.target_rate,
                "target_more_us": row.case.target_more_us,
                "more_us": row.more_us,
                "ratio": row.ratio,
                "met": row.met,
                "timings": {name: asdict(timing) for name, timing in row.timings.items()},
            }
            for row in rows
        ],
    }
    return write_report(script, report)


def write_report(script: Path, figures: Mapping[str, object]) -> Path:
    """Write figures with the time, the machine and the commit; returns the path of the file."""
    now = datetime.now(UTC)
    folder = script.resolve().parent / "results"
    folder.mkdir(exist_ok=True)
    path = folder / f"{script.stem}-{now:%Y%m%dT%H%M%SZ}.json"
    report = {
        "measured_at": now.isoformat(timespec="seconds"),
        "machine": machine(),
        "commit": commit(script.resolve().parent),
        **figures,
    }
    path.write_text(json.dumps(report, indent=2) + "\n")
    return path


def machine() -> dict[str, object]:
    """The properties of the machine that affect figures."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory_bytes / 2**30, 1),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": platform.platform(),
        "kernel_compiled": kernel_compiled(),
    }


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def kernel_compiled() -> bool:
    """Whether the records kernel would be imported as compiled code."""
    spec = importlib.util.find_spec("ottla.records._kernel.parser")
    return spec is not None and spec.origin is not None and not spec.origin.endswith(".py")


def commit(folder: Path) -> dict[str, object]:
    """The commit checked out in `folder`, and whether files differ from it."""

    def git(*arguments: str) -> str | None:
        done = subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, check=False
        )
        return done.stdout.strip() if done.returncode == 0 else None

    return {"id": git("rev-parse", "--verify", "HEAD"), "dirty": bool(git("status", "--porcelain"))}
