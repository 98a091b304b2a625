"""Escapes text from files and peers before it is printed.

Invariant: the result has no characters that a terminal acts on or that change how others are
displayed: control characters, direction marks, lone surrogates. It is reversible.
"""


def printable(text: str) -> str:
    """Escape what a terminal acts on in a message; backslashes stay."""
    return "\\".join(map(escaped, text.split("\\")))


def escaped(text: str) -> str:
    """Escape everything that is not printed as itself, as Python does."""
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(map(_escaped_character, text))


def _escaped_character(character: str) -> str:
    if character == "\\":
        return "\\\\"
    if character.isprintable():
        return character
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
