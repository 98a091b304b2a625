"""What the README shows works as it is shown."""

import re
import subprocess
import sys
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


@pytest.mark.parametrize(("target", "program"), [("run", "-m sensors"), ("broker", "ottla dev")])
def test_make_hands_on_what_is_said(target: str, program: str) -> None:
    (shown,) = re.findall(rf"`make {target} ARGS=\"(.*?)\"`", README)
    command = ["make", "--dry-run", "--assume-old=setup", target, f"ARGS={shown}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert f"{program} {shown}" in done.stdout


def test_the_page_and_the_help_agree_on_how_an_adoption_is_undone() -> None:
    words = "until an ottla broker has served from"
    command = [str(Path(sys.executable).parent / "ottla"), "log", "adopt", "--help"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for text in (told, (ROOT / "docs" / "adopt.md").read_text()):
        plain = re.sub(r"[^a-z]+", " ", text.lower())
        assert words in plain
        assert "as long as nothing was produced" not in plain
