"""docs/ARCHITECTURE.md names folders and modules that exist, and every folder of the source."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
SOURCE = ROOT / "src" / "ottla"


def exists(named: str) -> bool:
    places = [SOURCE / named, ROOT / named, SOURCE / "broker" / named, SOURCE / "client" / named]
    return any(place.exists() or place.with_suffix(".py").exists() for place in places)


def test_named_paths_exist() -> None:
    text, *flows = re.split(r"^```\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
    named = re.findall(r"`([\w/]+(?:/|\.py|\.toml))`", text + "".join(flows[1::2]))
    shown = re.findall(r"\b[a-z_]+/[a-z_]+\b", "".join(flows[::2]))
    assert len(named) > 40
    assert len(shown) > 30
    assert [path for path in {*named, *shown} if not exists(path)] == []


def test_every_folder_is_on_the_page() -> None:
    folders = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    described = set(re.findall(r"^\| `(\w+)/` \|", PAGE, re.MULTILINE))
    assert folders == described
