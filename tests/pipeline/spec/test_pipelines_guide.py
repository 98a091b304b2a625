"""The blocks of docs/pipelines.md are valid, and its output is what the command prints."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ottla.cli.pipeline.plan import plan_result
from ottla.cli.result import Result, Table
from ottla.pipeline import InvalidPipeline
from pipeline.spec.declarations import loaded

GUIDE = Path(__file__).parents[3] / "docs" / "pipelines.md"
README = Path(__file__).parents[3] / "README.md"
TEXT = GUIDE.read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)


FIRST = blocks("yaml")[0]


def test_first_pipeline_has_no_problems() -> None:
    assert loaded(FIRST).warnings == ()


def test_pipeline_of_the_readme_has_no_problems() -> None:
    [block] = re.findall(r"^```yaml\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)
    assert loaded(block).warnings == ()


def test_plan_is_that_of_the_guide() -> None:
    shown = show_lines(plan_result(loaded(FIRST).written))
    assert "$ ottla pipeline plan sensors.yaml\n" + "\n".join(shown) + "\n```" in TEXT


def show_lines(result: Result) -> list[str]:
    parts = (one.lines() if isinstance(one, Table) else [one] for one in result.shown)
    return [line for part in parts for line in part]


def test_errors_are_those_of_the_guide() -> None:
    wrong = FIRST.replace("topic:", "topics:").replace("FROM readings", "FROM reading")
    with pytest.raises(InvalidPipeline) as error:
        loaded(wrong)
    assert f"```\n{error.value}\n```\n" in TEXT


def test_other_blocks_fit_into_the_first_pipeline() -> None:
    parts = [block for block in blocks("yaml")[1:] if not block.startswith("#")]
    assert len(parts) == 5
    first: Any = yaml.safe_load(FIRST)
    for block in parts:
        more: Any = yaml.safe_load(block)
        whole = {**first, **more}
        for key in ("sources", "steps"):
            whole[key] = {**first[key], **more.get(key, {})}
        if "devices" not in whole["sources"]:
            whole["sources"]["devices"] = {"parquet": "data/devices"}
        if "sources" in more:  # the first pipeline needs the columns of its own source
            whole["sources"]["readings"]["json"] += ", temperature DOUBLE"
        assert loaded(yaml.safe_dump(whole, sort_keys=False)), block


def test_python_form_equals_the_file() -> None:
    [code] = blocks("python")
    names: dict[str, Any] = {}
    exec(compile(code, str(GUIDE), "exec"), names)
    assert names["pipeline"] == loaded(FIRST).written
    assert names["checked"].pipeline == loaded(FIRST).pipeline


def test_links_have_targets() -> None:
    headings = {
        re.sub(r"[^a-z0-9 -]", "", one.lower()).replace(" ", "-")
        for one in re.findall(r"^#+ (.*)$", TEXT, re.MULTILINE)
    }
    for target, anchor in re.findall(r"\]\(([^)#:]*)#?([^):]*)\)", TEXT):
        assert not target or (GUIDE.parent / target).exists(), target
        assert target or anchor in headings, anchor
