"""Checks of the source of Ottla: what every module must have, and what none may have.

Each test is one rule and lists every violation by file and line.
"""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "ottla"

PURE = {
    "ids.py", "errors.py", "settings", "protocol", "records",
    "cluster", "groups", "transactions", "access",
}  # fmt: skip
IO_MODULES = {
    "asyncio", "concurrent", "glob", "http", "io", "mmap", "multiprocessing", "os", "pathlib",
    "random", "secrets", "select", "selectors", "shutil", "socket", "ssl", "subprocess",
    "tempfile", "threading", "time", "urllib", "uuid",
}  # fmt: skip
IO_CALLS = {"open", "input", "print"}
CLOCK_CALLS = {"now", "utcnow", "today"}


Modules = dict[str, ast.Module]


@pytest.fixture(scope="module")
def modules() -> Modules:
    return {
        path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text())
        for path in sorted(SOURCE.rglob("*.py"))
    }


def test_source_is_found(modules: Modules) -> None:
    assert len(modules) > 100


def test_every_module_opens_with_a_docstring(modules: Modules) -> None:
    none_of(
        name
        for name, tree in modules.items()
        if not (ast.get_docstring(tree) or "").partition("\n")[0].endswith((".", ":"))
    )


def test_log_event_is_a_constant(modules: Modules) -> None:
    """Values are passed as arguments, so that events can be searched and counted."""
    events = [
        (f"{name}:{call.lineno}", call.args[0])
        for name, tree in modules.items()
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id == "_LOG"
        and call.func.attr != "log"
    ]
    assert events
    none_of(
        place
        for place, event in events
        if not isinstance(event, ast.Constant) or "%" in str(event.value)
    )


def test_every_api_has_a_module_and_every_module_an_api() -> None:
    from ottla.protocol.apis import API_OF_KEY

    named = {api.module for api in API_OF_KEY.values()}
    present = {path.stem for path in (SOURCE / "protocol" / "messages").glob("*.py")}
    assert named == present - {"__init__"}


def test_pure_folder_does_no_io(modules: Modules) -> None:
    """Checks what import-linter cannot: packages that it does not list, calls, and await."""
    pure = {name: tree for name, tree in modules.items() if name.partition("/")[0] in PURE}
    assert {name.partition("/")[0] for name in pure} >= PURE - {"transactions"}
    none_of(f"{name}: {found}" for name, tree in pure.items() for found in io_in(tree))


def test_broker_does_not_import_the_client(modules: Modules) -> None:
    broker = {name: tree for name, tree in modules.items() if name.startswith("broker/")}
    assert broker
    none_of(
        f"{name}: {module}"
        for name, tree in broker.items()
        for module in imported(tree)
        if module.startswith("ottla.client")
    )


def none_of(offenders: Iterable[str]) -> None:
    found = list(offenders)
    assert not found, "\n" + "\n".join(found)


def io_in(tree: ast.Module) -> Iterator[str]:
    """The I/O in a module; imports for the type checker do not count."""
    at_runtime = ast.Module(
        [
            node
            for node in tree.body
            if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
        ],
        [],
    )
    yield from (f"imports {name}" for name in imported(at_runtime) if top(name) in IO_MODULES)
    for node in ast.walk(at_runtime):
        match node:
            case ast.AsyncFunctionDef() | ast.Await():
                yield f"line {node.lineno}: waits"
            case ast.Call(func=ast.Name(id=name)) if name in IO_CALLS:
                yield f"line {node.lineno}: calls {name}()"
            case ast.Attribute(attr=name) if name in CLOCK_CALLS:
                yield f"line {node.lineno}: reads the clock with {name}()"
            case _:
                pass


def imported(tree: ast.AST) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


def top(module: str) -> str:
    return module.partition(".")[0]
