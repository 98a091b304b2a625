"""Text from files, made safe to print.

Invariant: what comes out holds no character that a terminal acts on or that changes how others
are shown: no control characters, no marks of direction, no lone surrogates. What came in can be
told from it.
"""


def printable(text: str) -> str:
    """A sentence of ours with all escaped that a terminal acts on; backslashes are its own."""
    return "\\".join(map(escaped, text.split("\\")))


def escaped(text: str) -> str:
    """The text with everything that is not printed as itself in the escapes of Python."""
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(map(_escaped_character, text))


def _escaped_character(character: str) -> str:
    if character == "\\":
        return "\\\\"
    if character.isprintable():
        return character
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
