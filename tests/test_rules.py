"""docs/rules.md has every rule that the code, the tests and the documents cite."""

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from test_rule_mutants import MUTANTS

ROOT = Path(__file__).parents[1]
RULES = (ROOT / "docs" / "rules.md").read_text()
NUMBER = re.compile(r"\b[A-F][1-9]\d?\b")


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the comments and strings of a module, or the lines of a document, with line numbers."""
    text = path.read_text()
    if not NUMBER.search(text):
        return
    if path.suffix == ".md":
        yield from enumerate(text.splitlines(), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            for number, line in enumerate(token.string.splitlines(), token.start[0]):
                yield number, line.partition("noqa")[0]


def rules() -> dict[str, str]:
    """Return the text of each rule by its number."""
    found = re.split(r'^(?:- <a id="\w+"></a>\*\*(\w+)\.\*\* |## .*)', RULES, flags=re.MULTILINE)
    return {number: text for number, text in zip(found[1::2], found[2::2], strict=True) if number}


def test_rules_name_their_tests_and_mutants() -> None:
    """Each rule of parts A, B, C and F has tests that begin with its number, and a mutant."""
    tests = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    known = {(one.rule, one.name, one.mutate.__name__) for one in MUTANTS}
    named: set[tuple[str, str, str]] = set()
    wrong: list[str] = []
    for number, text in rules().items():
        if number[0] not in "ABCF":
            continue
        _, _, marks = text.partition("*Tests:* ")
        found = re.findall(r"`(test_\w+)`(?:\s+\(mutant\s+`(\w+)`\))?", marks)
        named |= {(number, test, mutant) for test, mutant in found if mutant}
        if not any(mutant for _, mutant in found):
            wrong.append(f"{number} names no mutant")
        wrong += [
            f"{number}: {test} is not a test of this rule"
            for test, _ in found
            if test not in tests or number.lower() not in test.split("_")
        ]
    assert not wrong, "\n".join(wrong)
    assert named == known


def test_every_cited_rule_is_on_the_page() -> None:
    numbers = re.findall(r'^- <a id="(\w+)"></a>\*\*(\w+)\.\*\* ', RULES, re.MULTILINE)
    known = {number for _, number in numbers}
    assert [(anchor, number) for anchor, number in numbers if anchor != number.lower()] == []
    assert len(known) == len(numbers) > 50
    cited: set[str] = set()
    unknown: list[str] = []
    pages = set((ROOT / "docs").rglob("*.md")) - {ROOT / "docs" / "rules.md"}
    for path in [*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py"), *pages]:
        for line, text in prose(path):
            found = set(NUMBER.findall(text))
            cited |= found
            unknown += [f"{path.relative_to(ROOT)}:{line}: {rule}" for rule in found - known]
    assert not unknown, "\n".join(unknown)
    assert {"A1", "B12", "C4", "D1", "E7", "F7"} <= cited
