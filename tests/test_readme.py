"""What the README shows works as it is shown."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("block", BLOCKS)
def test_the_code_runs(block: str) -> None:
    exec(compile(block, "README.md", "exec"), {})


def test_there_is_code_to_run() -> None:
    assert len(BLOCKS) >= 4


@pytest.mark.parametrize("page", ["README.md", "docs/ARCHITECTURE.md", "docs/decisions/README.md"])
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text()
    targets = re.findall(r"\]\(([^)#:]+)\)", text)
    assert targets
    for target in targets:
        assert ((ROOT / page).parent / target).exists(), target


def test_the_commands_of_the_readme_are_in_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for command in set(re.findall(r"\bmake ([a-z]+)\b", README)):
        assert re.search(rf"^{command}:", makefile, re.MULTILINE), command
