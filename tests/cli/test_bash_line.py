"""Parsing of a line for bash completion, without bash."""

from cases import each_case
from ottla.cli.bash_line import bash_line

BREAKS = " \t\n\"'><=;|&(:"


@each_case(
    ("text", "words", "kept", "quote"),
    [
        ("ottla topic ", ["ottla", "topic", ""], 0, ""),
        ("ottla -b a:1 au", ["ottla", "-b", "a:1", "au"], 0, ""),
        ("ottla --topic=au", ["ottla", "--topic=au"], 8, ""),
        ("ottla te\\:a:b", ["ottla", "te:a:b"], 5, ""),
        ("ottla 'a b", ["ottla", "a b"], 0, "'"),
        ('ottla a:"b:c" \'d ', ["ottla", "a:b:c", "d "], 0, "'"),
        ('ottla --group="x:', ["ottla", "--group=x:"], 8, '"'),
        ('ottla "a\\"b" \'\' c\\', ["ottla", 'a"b', "", "c"], 0, ""),
    ],
)
def test_line_is_split_like_the_shell_does(
    text: str, words: list[str], kept: int, quote: str
) -> None:
    assert bash_line(text, BREAKS) == (words, kept, quote)


@each_case(
    ("text", "breaks", "value", "offered"),
    [
        ("ottla au", BREAKS, "audit", "audit"),
        ("ottla --topic=au", BREAKS, "audit", "audit"),
        ("ottla --topic=au", " ", "audit", "--topic=audit"),
        ("ottla team:b", BREAKS, "team:blue", "blue"),
        ("ottla team:b", " ", "team:blue", "team:blue"),
        ("ottla 'team:b", BREAKS, "team:blue", "team:blue"),
        ("ottla --group=team:b", BREAKS, "team:blue", "blue"),
        ("ottla nig", BREAKS, "night shift", "night\\ shift"),
        ("ottla 'nig", BREAKS, "night shift", "night shift"),
        ("ottla team:b", BREAKS, "other", None),
    ],
)
def test_completion_starts_after_the_last_break(
    text: str, breaks: str, value: str, offered: str | None
) -> None:
    assert bash_line(text, breaks).offered(value) == offered
