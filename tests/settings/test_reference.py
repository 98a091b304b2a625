"""The reference pages match the tables."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "docs" / "reference" / "generate.py"


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference_generate", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_reference_pages_are_current(
    generate: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert generate.main(["--check"]) == 0, capsys.readouterr().out


def test_stale_missing_and_extra_pages_are_reported(
    generate: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tmp_path = tmp_path / "reference"  # one page is next to the folder
    tmp_path.mkdir()
    generate.write(tmp_path)
    assert generate.check(tmp_path) == 0
    page = tmp_path / "settings-broker.md"
    page.write_text(page.read_text(encoding="utf-8").replace("`num.partitions`", "`num.parts`"))
    (tmp_path / "settings-topic.md").unlink()
    (tmp_path / "gone.md").write_text(generate.HEADER)
    (tmp_path / "by-hand.md").write_text("# mine")
    assert generate.check(tmp_path) == 1
    printed = capsys.readouterr().out
    assert "settings-broker.md is stale" in printed
    assert "`num.parts`" in printed
    assert "settings-topic.md is stale" in printed
    assert "gone.md is stale" in printed
    assert "settings-client.md" not in printed
    assert "by-hand.md" not in printed
    assert len(printed.splitlines()) < 60


def test_pages_contain_every_setting(generate: ModuleType) -> None:
    from ottla.settings.config_parser import TABLES

    text = "".join(generate.render(page) for _, page in generate.PAGES)
    for table in TABLES:
        for name in table.names:
            assert f"`{name}`" in text


def test_table_rows_have_as_many_cells_as_the_header(generate: ModuleType) -> None:
    for _, page in generate.PAGES:
        width = 0
        for line in generate.render(page).splitlines():
            cells = line.replace("\\|", "").count("|")
            if not line.startswith("|"):
                width = 0
            elif not width:
                width = cells
            assert cells == width or not line.startswith("|"), line


def test_page_of_commands_has_every_option(generate: ModuleType) -> None:
    import typer.main

    from ottla.cli.main import app

    page = generate.render(generate.commands_page)
    common = page.partition("\n## ")[0]
    leaves = [*generate.leaf_commands(typer.main.get_command(app([])), ("ottla",))]
    for words, command in leaves:
        section = page.partition(f"\n## `{' '.join(words)}")[2].partition("\n## ")[0]
        has_common = "options of commands that connect" in section or "accepts `-o`" in section
        for one in command.params:
            if one.param_type_name == "option" and one.name != "help":
                *_, row = generate.grid((), [generate.describe_option(one)])
                assert row in (section + common if has_common else section), words
