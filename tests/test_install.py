"""Installation from source, with a C compiler and without one; the lock files and the Makefile."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from sampling import SOAK

ROOT = Path(__file__).parents[1]
TRANSLATED = ROOT / "build/cython"

# Runs without Cython and without a compiled kernel.
WITHOUT_CYTHON = """
import sys
sys.modules["cython"] = sys.modules["Cython"] = None
from ottla.records import Batch, BatchBuilder
builder = BatchBuilder()
assert builder.append(timestamp=1, key=b"k", value=b"v")
batch = Batch(builder.build())
assert [(r.key, r.value) for r in batch.records()] == [(b"k", b"v")]
from ottla.cli.entry import run
sys.argv = ["ottla", "version", "-o", "json"]
run()
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the source without the output of earlier builds, except the C of `make setup`.

    Translating the kernel to C takes longest. Cython translates again what is older than its
    source. `make soak` translates everything, once for both builds: a build without a compiler
    leaves nothing else to a build with one.
    """
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    setup = (source / "setup.py").read_text()
    assert setup.count('"-O3"') == 1
    (source / "setup.py").write_text(setup.replace('"-O3"', '"-O0"'))  # four times faster to build
    ignored = shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT / "src", source / "src", ignore=ignored)
    if not SOAK and TRANSLATED.exists():
        shutil.copytree(TRANSLATED, source / "build/cython")  # with the times of the files
    return source


def build_wheel(source: Path, folder: Path, environment: Mapping[str, str]) -> Path:
    """Build a wheel."""
    arguments = ["--no-deps", "--no-build-isolation", "--quiet", "--wheel-dir", str(folder)]
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *arguments, str(source)],
        check=True,
        env={**os.environ, **environment},
    )
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def python_wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that is built without a compiler."""
    folder = tmp_path_factory.mktemp("python")
    return build_wheel(source, folder, {"CC": "/bin/false", "CXX": "/bin/false"})


@pytest.fixture(scope="module")
def compiled_wheel(
    source: Path, python_wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The wheel that is built with a compiler, after the other one."""
    assert python_wheel.exists()
    return build_wheel(source, tmp_path_factory.mktemp("compiled"), {})


def kernels_in(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return [name for name in archive.namelist() if "/records/_kernel/" in name]


def test_without_a_compiler_the_kernel_runs_as_python(python_wheel: Path, tmp_path: Path) -> None:
    names = kernels_in(python_wheel)
    assert not any(name.endswith((".so", ".pyd")) for name in names)
    kernel = ROOT / "src/ottla/records/_kernel"
    declared = {path.relative_to(ROOT / "src").as_posix() for path in kernel.glob("*.p[xy]*")}
    assert declared == {*names}
    site = tmp_path / "site"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile",
         "--target", str(site), str(python_wheel)],
        check=True,
    )  # fmt: skip
    answer = subprocess.run(
        [sys.executable, "-c", WITHOUT_CYTHON],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(site)},
    )
    facts = json.loads(answer.stdout)
    assert facts["kernel"] == "python"
    assert Path(facts["kernel_file"]).is_relative_to(site)


def test_with_a_compiler_the_kernel_is_compiled(request: pytest.FixtureRequest) -> None:
    """`make soak` builds a wheel. A test run looks at what `make setup` has built of this tree."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no C compiler ({compiler}) on this machine")
    if SOAK:
        names = kernels_in(request.getfixturevalue("compiled_wheel"))
    else:
        kernel = (ROOT / "src/ottla/records/_kernel").iterdir()
        names = [path.relative_to(ROOT / "src").as_posix() for path in kernel]
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    compiled = {name.removesuffix(suffix) for name in names if name.endswith(suffix)}
    declared = {name.removesuffix(".pxd") for name in names if name.endswith(".pxd")}
    sources = {name.removesuffix(".py") for name in names if name.endswith(".py")}
    folder = "ottla/records/_kernel"
    inlined = {f"{folder}/constants", f"{folder}/integers"}
    assert compiled == declared - inlined != set()
    assert sources - compiled == inlined | {f"{folder}/__init__", f"{folder}/cython_stub"}
    assert f"{folder}/__init__.pyi" in names


def pins(lock: str) -> dict[str, set[str]]:
    """Each pinned package of a lock file, with its version and marker, and its hashes."""
    text = (ROOT / "requirements" / f"{lock}.lock").read_text().replace("\\\n", "")
    found: dict[str, set[str]] = {}
    for line in text.splitlines():
        if line and not line.lstrip().startswith("#"):
            package, *hashes = line.split("--hash=")
            found[package.strip()] = {one.strip() for one in hashes}
    return found


def test_lock_files_pin_the_same_versions_with_hashes() -> None:
    dev = pins("dev")
    for lock in ("build", "broker", "run"):
        assert all(pins(lock).values())
        assert pins(lock).items() <= dev.items()
    assert pins("build").items() < pins("broker").items() < pins("run").items()
    versions = {package.partition(" ")[0] for package in dev}
    names = {version.partition("==")[0] for version in versions}
    shared = {one.partition(" ")[0] for one in pins("extras") if one.partition("==")[0] in names}
    assert shared <= versions


def make(*arguments: str) -> str:
    command = ["make", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def installed_by(target: str) -> list[str]:
    """The lock files that a target installs, each once: make may start another make."""
    commands = make("--dry-run", "--always-make", target)
    return [*dict.fromkeys(re.findall(r"-r requirements/(\w+)\.lock", commands))]


def test_make_run_installs_no_developer_tools() -> None:
    assert installed_by("run") == ["build", "run"]
    assert installed_by("test") == ["build", "run", "dev"]
    names = {package.partition("==")[0] for package in pins("run")}
    assert {"pyspark", "pandas", "pyarrow", "cython"} <= names
    assert not names & {"aiokafka", "confluent-kafka", "polars", "pyright", "pytest", "ruff"}


def test_make_check_checks_the_types_of_every_folder() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    folders = [
        one for line in re.findall(r"/pyright (.*)", make("-n", "check")) for one in line.split()
    ]
    assert sorted(folders) == sorted(settings["tool"]["pyright"]["include"])


def test_make_broker_installs_no_spark() -> None:
    assert installed_by("broker") == ["build", "broker"]
    names = {package.partition("==")[0] for package in pins("broker")}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert names >= {re.split("[>;]", one)[0] for one in project["dependencies"]}
    assert not names & {"numpy", "pandas", "py4j", "pyarrow", "pyspark"}


def test_make_run_without_java_installs_nothing(tmp_path: Path) -> None:
    command = ["make", f"VENV={tmp_path / 'venv'}", f"PYTHON={sys.executable}", "run"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    environment["JAVA_HOME"] = str(tmp_path / "none")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("Spark needs Java, but ")
    assert "install Java 17 or newer" in done.stderr
    assert "`make broker` starts a broker without Spark and Java" in done.stderr
    assert not (tmp_path / "venv").exists()


def test_make_help_lists_every_command() -> None:
    makefile = (ROOT / "Makefile").read_text()
    phony, parts = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert all(part.startswith("test-") for part in parts.split())
    listed = re.findall(r"^  make (\S+) +[A-Z]", make("help"), re.MULTILINE)
    assert sorted(listed) == sorted(phony.split())
