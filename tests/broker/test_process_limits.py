"""The limits of the process: which memory counts."""

import os
from pathlib import Path

import pytest

from ottla.broker import process_limits
from ottla.broker.process_limits import memory_bytes

MACHINE = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 1000}


def test_memory_is_that_of_the_machine_or_its_cgroup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second, first = tmp_path / "memory.max", tmp_path / "memory.limit_in_bytes"
    monkeypatch.setattr(process_limits, "CGROUP_MEMORY_FILES", (str(second), str(first)))
    monkeypatch.setattr(os, "sysconf", MACHINE.__getitem__)
    assert memory_bytes() == 4_096_000  # no cgroup
    second.write_text("max\n")
    assert memory_bytes() == 4_096_000
    second.write_text("3000000\n")
    assert memory_bytes() == 3_000_000
    first.write_text("2000000\n")
    assert memory_bytes() == 2_000_000
    first.write_text("9223372036854771712\n")  # version 1 without a limit
    second.write_text("max\n")
    assert memory_bytes() == 4_096_000


def test_memory_is_unknown_where_the_system_does_not_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_limits, "CGROUP_MEMORY_FILES", (str(tmp_path / "none"),))
    monkeypatch.delattr(os, "sysconf")  # as on Windows
    assert memory_bytes() is None
