"""README.md and docs/protocol.md: the code runs as shown, and links and commands exist."""

import os
import re
import subprocess
import sys
from pathlib import Path

from ottla.testing import ClusterThread

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def python_blocks(page: str) -> list[str]:
    text = (ROOT / page).read_text()
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_python_programs_run(tmp_path: Path) -> None:
    # tests/pipeline/test_spark_readme.py runs the block with Spark.
    blocks = [block for block in python_blocks("README.md") if "pyspark" not in block]
    programs = [block for block in blocks if "def test_" not in block]
    assert len(programs) == len(blocks) - 1 == 2
    printed: list[str] = []
    with ClusterThread() as cluster:
        for number, program in enumerate(programs):
            script = tmp_path / f"program_{number}.py"
            script.write_text(program.replace("127.0.0.1:9092", cluster.bootstrap_servers))
            command = [sys.executable, str(script)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, done.stderr
            printed.append(done.stdout)
    assert printed == ["0 0 b'ann' b'42 apples'\n", "0 0 b'bob' b'7 pears'\n"]


def test_pytest_example_passes(tmp_path: Path) -> None:
    (shown,) = [block for block in python_blocks("README.md") if "def test_" in block]
    (tmp_path / "test_orders.py").write_text(shown)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout
    (name,) = re.findall(r"def (test_\w+)", shown)
    picture = (ROOT / "docs" / "images" / "pytest.svg").read_text()
    assert name in picture, "draw it again: docs/images/pytest_run.py"


def test_commands_of_the_first_minute_work(tmp_path: Path) -> None:
    section = README[README.index("## The first minute") : README.index("## A Python program")]
    commands = "".join(re.findall(r"^```\n(.*?)^```", section, re.DOTALL | re.MULTILINE))
    assert commands.startswith("ottla dev\n")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with ClusterThread() as cluster:
        told = commands.removeprefix("ottla dev\n")
        told = re.sub(r"(ottla \w+)", rf"\1 -b {cluster.bootstrap_servers}", told)
        told = re.sub(r"ottla (topic|group) (-b \S+) (\w+)", r"ottla \1 \3 \2", told)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", told],
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.returncode == 0, done.stderr
    assert "hello\nworld\n" in done.stdout


def test_protocol_examples_run() -> None:
    blocks = python_blocks("docs/protocol.md")
    assert len(blocks) == 4
    for block in blocks:
        exec(compile(block, "docs/protocol.md", "exec"), {})


def test_links_have_targets() -> None:
    broken: list[str] = []
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
    for page in [*pages, *(ROOT / "docs").rglob("*.md")]:
        text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
        for target, anchor in re.findall(r"\]\(([^)#: ]*)(#[^)]*)?\)", text):
            place = page.parent / target if target else page
            if not place.exists() or (anchor and anchor not in anchors(place)):
                broken.append(f"{page.relative_to(ROOT)}: {target}{anchor}")
    assert not broken, "\n".join(broken)


def anchors(page: Path) -> set[str]:
    """The anchors of a page, as GitHub names headings."""
    text = page.read_text()
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    named = {re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in headings}
    return {f"#{name}" for name in [*named, *re.findall(r'<a id="(\w+)">', text)]}


def test_make_commands_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    commands = set(re.findall(r"\bmake ([a-z]+)\b", README))
    assert commands
    missing = [one for one in commands if not re.search(rf"^{one}:", makefile, re.MULTILINE)]
    assert missing == []


def test_make_passes_arguments_on() -> None:
    for target, program in (("run", "-m sensors"), ("broker", "ottla dev")):
        (shown,) = re.findall(rf"`make {target} ARGS=\"(.*?)\"`", README)
        command = ["make", "--dry-run", "--assume-old=setup-run", target, f"ARGS={shown}"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        assert f"{program} {shown}" in done.stdout


def test_page_and_help_agree_on_undoing_an_adoption() -> None:
    words = "to undo the adoption delete this file before you start an ottla broker with"
    command = [str(Path(sys.executable).parent / "ottla"), "log", "adopt", "--help"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for text in (told, (ROOT / "docs" / "adopt.md").read_text()):
        plain = re.sub(r"[^a-z]+", " ", text.lower())
        assert words in plain
        assert "as long as nothing was produced" not in plain
