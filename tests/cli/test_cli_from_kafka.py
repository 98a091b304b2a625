"""docs/cli-from-kafka.md: every installed tool is in its table, and has both of its names."""

import tomllib
from pathlib import Path

from cli.console import command

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "cli-from-kafka.md").read_text(encoding="utf-8")
KAFKAS = ("kafka-", "zookeeper-")
SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]


def test_every_tool_is_in_the_table() -> None:
    rows = [line.split("|") for line in PAGE.splitlines() if line.startswith("|")]
    here = {cells[2].strip().strip("`") for cells in rows}
    missing = {name.removesuffix(".sh") for name in SCRIPTS if name.startswith(KAFKAS)} - here
    assert not missing
    assert "kafka-topics" in here


def test_every_tool_has_the_name_of_kafkas_script_as_well() -> None:
    tools = {
        name: target
        for name, target in SCRIPTS.items()
        if name.startswith(KAFKAS) and not name.endswith(".sh")
    }
    assert len(tools) == 23
    scripts = {name: target for name, target in SCRIPTS.items() if name.endswith(".sh")}
    assert scripts == {f"{name}.sh": target for name, target in tools.items()}


def test_tool_starts_by_the_name_of_kafkas_script() -> None:
    done = command("kafka-topics.sh", "--version", fresh=True)
    again = command("kafka-topics", "--version", fresh=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, again.stdout, again.stderr)
    assert done.stdout
