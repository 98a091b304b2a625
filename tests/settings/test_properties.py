import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import each_case
from ottla.settings.invalid_settings import InvalidSettings, Origin
from ottla.settings.properties import read_override, read_properties

FILE = "server.properties"


def pairs(text: str) -> list[tuple[str, object]]:
    read = read_properties(text, FILE)
    assert not read.problems
    return [(entry.name, entry.value) for entry in read.entries]


@each_case(
    ("text", "expected"),
    [
        ("a=b", [("a", "b")]),
        ("a = b", [("a", "b")]),
        ("a:b", [("a", "b")]),
        ("a : b", [("a", "b")]),
        ("a b", [("a", "b")]),
        ("a\tb", [("a", "b")]),
        ("a\fb", [("a", "b")]),
        ("  a=b", [("a", "b")]),
        ("a=b ", [("a", "b ")]),
        ("a==b", [("a", "=b")]),
        ("a=:b", [("a", ":b")]),
        ("a = : b", [("a", ": b")]),
        ("a", [("a", "")]),
        ("a=", [("a", "")]),
        ("=b", [("", "b")]),
        ("a\\=b=c", [("a=b", "c")]),
        ("a\\:b c", [("a:b", "c")]),
        ("a\\ b c", [("a b", "c")]),
        ("a=b=c:d e", [("a", "b=c:d e")]),
        ("a=\\=b", [("a", "=b")]),
        ("# comment\na=b", [("a", "b")]),
        ("  ! comment\na=b", [("a", "b")]),
        ("a=b # no comment", [("a", "b # no comment")]),
        ("# comment \\\na=b", [("a", "b")]),
        ("\n\n  \na=b\n\n", [("a", "b")]),
        ("a=b\\\n   c", [("a", "bc")]),
        ("a=b\\\\\nc=d", [("a", "b\\"), ("c", "d")]),
        ("a=b\\\\\\\nc", [("a", "b\\c")]),
        ("a=b,\\\n# kept\nc=d", [("a", "b,# kept"), ("c", "d")]),
        ("a=b\\\n\nc=d", [("a", "b"), ("c", "d")]),
        ("a\\\n=b", [("a", "b")]),
        ("a=b\\", [("a", "b")]),
        ("\\\n# comment after nothing\na=b", [("a", "b")]),
        ("a=1\r\nb=2\rc=3\n", [("a", "1"), ("b", "2"), ("c", "3")]),
        ("a=b\\\r\n  c\r\nd=e", [("a", "bc"), ("d", "e")]),
        ('a=\\t\\n\\r\\f|\\q\\\\|\\"', [("a", '\t\n\r\f|q\\|"')]),
        ("a=\\u0041\\u00e9", [("a", "Aé")]),
        ("\\u0061=b", [("a", "b")]),
        ("a=\\ud83d\\ude00", [("a", "😀")]),
        ("a=\\u005c", [("a", "\\")]),
        ("a=b\x0bc\x85d\u2028e", [("a", "b\x0bc\x85d\u2028e")]),
        ("\ufeffa=b", [("a", "b")]),
        ("", []),
    ],
)
def test_parses_like_java(text: str, expected: list[tuple[str, str]]) -> None:
    assert pairs(text) == expected


def test_entry_has_its_first_line_number() -> None:
    read = read_properties("# one\na=1\\\n  2\\\n  3\r\n\r\nb=4", FILE)
    assert [(each.name, str(each.origin)) for each in read.entries] == [
        ("a", "server.properties:2"),
        ("b", "server.properties:6"),
    ]


def test_last_duplicate_applies_with_a_warning() -> None:
    read = read_properties("a=1\nb=2\na=3\na=4", FILE)
    assert [(each.name, each.value) for each in read.entries] == [("b", "2"), ("a", "4")]
    assert [str(each) for each in read.notices] == [
        "server.properties:3: a: set twice, in lines 1 and 3; the last value applies",
        "server.properties:4: a: set twice, in lines 3 and 4; the last value applies",
    ]


@each_case("escape", ["\\u00", "\\u00g0", "\\u", "\\u+041", "\\ud83d", "\\ude00x"])
def test_malformed_escape_reports_line_without_value(escape: str) -> None:
    read = read_properties(f"x=1\npassword=hunter2{escape}\ny=2", FILE)
    assert [each.name for each in read.entries] == ["x", "y"]
    (problem,) = read.problems
    assert str(problem).startswith("server.properties:2: password: malformed \\uXXXX")
    assert "hunter2" not in str(problem)


def test_a_malformed_escape_in_a_key() -> None:
    (problem,) = read_properties("\\uZZ=1", FILE).problems
    assert str(problem).startswith("server.properties:1: malformed")


def test_every_malformed_escape_is_found() -> None:
    assert len(read_properties("a=\\u1\nb=2\nc=\\u3", FILE).problems) == 2


def test_entry_repr_hides_its_value() -> None:
    assert "hunter2" not in repr(read_properties("ssl.key.password=hunter2", FILE))


def test_overrides() -> None:
    entry = read_override("a.b = c=d ")
    assert (entry.name, entry.value, entry.origin) == ("a.b", " c=d ", Origin("--override"))
    assert str(entry.origin) == "--override"


@each_case("text", ["hunter2", "", "=hunter2", " =hunter2"])
def test_override_without_key_hides_its_text(text: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        read_override(text)
    assert str(caught.value) == "--override: expected key=value"


# A separate writer, written from the documentation of java.util.Properties.store.
def written(key: str, value: str, *, separator: str, wide: bool, breaks: bool) -> str:
    def escaped(text: str, *, is_key: bool) -> str:
        out: list[str] = []
        for at, each in enumerate(text):
            if each in "\\=:#!" or (each == " " and (is_key or at == 0)):
                out.append("\\" + each)
            elif each in "\t\n\r\f":
                out.append({"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}[each])
            elif wide and not 0x20 <= ord(each) <= 0x7E:
                units = each.encode("utf-16-be", "surrogatepass")
                out += [f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2)]
            else:
                out.append(each)
        return ("\\\n \t" if breaks else "").join(out)

    return escaped(key, is_key=True) + separator + escaped(value, is_key=False)


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufeff"), max_size=12)


@given(
    st.dictionaries(texts.filter(bool), texts, max_size=5),
    st.sampled_from(["=", ":", " = ", "\t:", " "]),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.booleans(),
    st.booleans(),
)
def test_written_properties_round_trip(
    values: dict[str, str], separator: str, end: str, wide: bool, breaks: bool
) -> None:
    # In a continued value, a blank here would be dropped as indentation of the next line.
    if breaks:
        values = {key: value.replace(" ", "_") for key, value in values.items()}
    lines = ["# a comment", ""]
    lines += [
        written(key, value, separator=separator, wide=wide, breaks=breaks)
        for key, value in values.items()
    ]
    assert pairs(end.join(lines).replace("\\\n", "\\" + end)) == list(values.items())


@given(st.text(alphabet="ab=: #!\\u0041\n\r\t", max_size=40))
def test_any_text_is_parsed_or_reported(text: str) -> None:
    read = read_properties(text, FILE)
    assert all(problem.origin is not None for problem in read.problems)
