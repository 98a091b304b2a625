"""docs/cli-from-kafka.md: every installed tool is in its table."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "cli-from-kafka.md").read_text(encoding="utf-8")
SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]


def test_every_tool_is_in_the_table() -> None:
    rows = [line.split("|") for line in PAGE.splitlines() if line.startswith("|")]
    here = {cells[2].strip().strip("`") for cells in rows}
    missing = {name for name in SCRIPTS if name.startswith("kafka-")} - here
    assert not missing
    assert "kafka-topics" in here
