"""The comparison of clients: what it prints after a short run."""

import importlib
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.mark.parametrize("arguments", [["--quick"], []], ids=["quick", "whole"])
def test_short_comparison_says_that_it_is_too_short(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    clients = importlib.import_module("clients")

    @contextmanager
    def no_broker(settings: object) -> Generator[None]:
        yield None

    monkeypatch.setattr(clients, "ottla_broker", no_broker)

    def measure_nothing(*of: object) -> None:
        pass

    def no_report(path: Path, report: object) -> Path:
        return path

    monkeypatch.setattr(clients, "_round_trips", measure_nothing)
    monkeypatch.setattr(clients, "write_report", no_report)
    monkeypatch.setattr(sys, "argv", ["clients.py", "--only", clients.TRIPS, *arguments])
    clients.main()
    printed = " ".join(capsys.readouterr().out.split())
    assert ("Compare clients in a whole run." in printed) == bool(arguments)
