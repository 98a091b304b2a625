"""The examples of the Spark guide run as shown, from the first block to the last."""

import os
import re
from pathlib import Path
from typing import Any

import pytest

from judges.ottla_broker import OttlaBroker

GUIDE = Path(__file__).parents[2] / "docs" / "spark.md"


def test_examples_of_the_guide_run(
    spark: Any, broker: OttlaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 4
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in blocks:
        told = block.replace("127.0.0.1:9092", broker.bootstrap)
        # Spark's working directory is the one in which it was started.
        told = re.sub(r'"(means|checkpoints/\w+)"', rf'"{tmp_path}/\1"', told)
        exec(compile(told, str(GUIDE), "exec"), names)
    assert sorted(os.listdir(tmp_path)) == ["checkpoints", "means"]


@pytest.mark.parametrize("page", ["spark.md", "spark-from-kafka.md"])
def test_links_have_targets(page: str) -> None:
    text = (GUIDE.parent / page).read_text()
    for target, anchor in re.findall(r"\]\(([^)#:]*)#?([^)]*)\)", text):
        place = GUIDE.parent / (target or page)
        assert place.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", place.read_text(), re.MULTILINE)
            assert anchor in {
                re.sub(r"[^a-z0-9 -]", "", one.lower()).replace(" ", "-") for one in headings
            }
