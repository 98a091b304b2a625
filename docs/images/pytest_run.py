"""Draw docs/images/pytest.svg: the terminal of pytest with the test that README.md shows.

Run `.venv/bin/python docs/images/pytest_run.py` after a change of that test.
"""

import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[2]
COLUMNS = 80
# Only Ottla's plugin, as in an environment that has nothing else; others slow the start.
PLUGINS = ["-p", "no:cacheprovider", "-p", "ottla.testing.pytest_plugin"]
OPTIONS = ["-v", "--color=yes", *PLUGINS, "-o", "console_output_style=count"]


def main() -> None:
    """Run the test for real, and save what the terminal shows."""
    readme = (ROOT / "README.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", readme, re.DOTALL | re.MULTILINE)
    (shown,) = [block for block in blocks if "def test_" in block]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "test_orders.py").write_text(shown)
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *OPTIONS],
            cwd=folder,
            env={
                **os.environ,
                "COLUMNS": str(COLUMNS),
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            },
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    # The header has the versions and plugins of one machine. The rest is the same everywhere.
    first, _, rest = done.stdout.partition("\n")
    rest = rest[rest.index("collected") :]
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text("$ pytest -v", style="bold"))
    for line in [first, *rest.splitlines()]:
        console.print(Text.from_ansi(line), soft_wrap=True)
    console.save_svg(str(ROOT / "docs" / "images" / "pytest.svg"), title="pytest")


if __name__ == "__main__":
    main()
