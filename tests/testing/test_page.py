"""The test files in docs/testing.md pass as shown."""

import re
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def test_page_shows_every_method_and_fixture() -> None:
    shown = "\n".join(BLOCKS)
    for name in (
        "ottla_cluster",
        "ottla_cluster_of(3)",
        "ottla_settings",
        "kill()",
        "start()",
        "disk_full()",
        "settled()",
        "leader(",
    ):
        assert name in shown


def test_examples_of_the_page_pass(tmp_path: Path) -> None:
    for number, block in enumerate(BLOCKS):
        (tmp_path / f"test_shown_{number}.py").write_text(block)
        assert "def test_" in block
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
