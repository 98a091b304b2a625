"""Reads the source: what every module must have, and what none may."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "ottla"
MODULES = sorted(path for path in SOURCE.rglob("*.py"))

VAGUE = {"util", "utils", "helper", "helpers", "manager", "common", "misc", "base", "core"}
LINES_MAX = 400
# Tables grow with what they list; the kernel is one module because one module is compiled.
LONGER = {"protocol/schema.py", "records/kernel.py", "settings/broker.py"}


def module_id(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def test_there_are_modules() -> None:
    assert len(MODULES) > 100


@pytest.mark.parametrize("path", MODULES, ids=module_id)
def test_a_module_opens_with_a_docstring(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text()))
    assert docstring
    assert docstring.splitlines()[0].endswith((".", ":"))


def is_table(path: Path) -> bool:
    return path.parent.name == "messages"


def is_thin(path: Path) -> bool:
    """Translates between a request or a command line and what does the work."""
    of_a_noun = "cli" in path.parts and path.stem.rpartition("_")[2] in ("command", "admin")
    return path.parent.name in ("cli", "handlers") or of_a_noun


@pytest.mark.parametrize(
    "path",
    [p for p in MODULES if p.name != "__init__.py" and not is_table(p) and not is_thin(p)],
    ids=module_id,
)
def test_a_module_says_its_invariant(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    assert re.search(r"\bInvariants?\b", docstring), "say what always holds"


@pytest.mark.parametrize("path", MODULES, ids=module_id)
def test_a_module_is_a_noun(path: Path) -> None:
    assert not VAGUE & set(path.stem.strip("_").split("_"))


@pytest.mark.parametrize("path", MODULES, ids=module_id)
def test_a_module_is_short(path: Path) -> None:
    if module_id(path) not in LONGER:
        assert len(path.read_text().splitlines()) <= LINES_MAX, "look for the second noun in it"


@pytest.mark.parametrize("path", MODULES, ids=module_id)
def test_an_event_is_named_by_words_that_stay_and_its_facts_are_apart(path: Path) -> None:
    for call in ast.walk(ast.parse(path.read_text())):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        owner = call.func.value
        if isinstance(owner, ast.Name) and owner.id == "_LOG" and call.func.attr != "log":
            event = call.args[0]
            assert isinstance(event, ast.Constant), f"line {call.lineno}"
            assert "%" not in str(event.value), f"line {call.lineno}"


def test_every_api_has_its_module_and_every_module_its_api() -> None:
    from ottla.protocol.apis import API_OF_KEY

    named = {api.module for api in API_OF_KEY.values()}
    present = {p.stem for p in (SOURCE / "protocol" / "messages").glob("*.py")} - {"__init__"}
    assert named == present


# import-linter sees which modules are imported; what follows it cannot see.
THINKING = {
    "ids.py", "errors.py", "settings", "protocol", "records",
    "cluster", "groups", "transactions", "access",
}  # fmt: skip
TOUCHING = {
    "asyncio", "concurrent", "glob", "http", "io", "mmap", "multiprocessing", "os", "pathlib",
    "random", "secrets", "select", "selectors", "shutil", "socket", "ssl", "subprocess",
    "tempfile", "threading", "time", "urllib", "uuid",
}  # fmt: skip
THINKING_MODULES = [p for p in MODULES if p.relative_to(SOURCE).parts[0] in THINKING]


def imported(tree: ast.AST) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


def runtime(tree: ast.Module) -> ast.Module:
    """The module without what is imported for the type checker alone."""
    body = [
        node
        for node in tree.body
        if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    ]
    return ast.Module(body, [])


@pytest.mark.parametrize("path", THINKING_MODULES, ids=module_id)
def test_a_thinking_module_touches_nothing(path: Path) -> None:
    tree = runtime(ast.parse(path.read_text()))
    assert not {name.split(".")[0] for name in imported(tree)} & TOUCHING
    for node in ast.walk(tree):
        assert not isinstance(node, ast.AsyncFunctionDef | ast.Await)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in {"open", "input", "print"}
        if isinstance(node, ast.Attribute):
            assert node.attr not in {"now", "utcnow", "today"}, "the time is an argument"


def test_the_broker_is_no_client_of_its_own() -> None:
    for path in MODULES:
        if path.relative_to(SOURCE).parts[0] == "broker":
            names = imported(ast.parse(path.read_text()))
            assert not any(name.startswith("ottla.client") for name in names), path
