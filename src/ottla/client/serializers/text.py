"""Text in an encoding, with Java's bytes and replacement characters.

Invariant: in the encodings that every Java has (ASCII, Latin-1, UTF-8, UTF-16 and UTF-32 in either
byte order), text has the bytes of Java's `String`, and bytes decode to Java's text. Exception: in
UTF-16 and UTF-32 only the invalid bytes are replaced, where Java may also replace the next
character. Other encodings are Python's.
"""

import codecs
import re
from typing import Final

from ottla.client.serializers.serde import Serde, check_kind

# The encoding and byte order mark to write, and how to decode: by the mark, or as the first.
_MARKED: Final = {
    "utf-16": ("utf-16-be", codecs.BOM_UTF16_BE, ("utf-16-be", "utf-16-le")),
    "utf-32": ("utf-32-be", b"", ("utf-32-be", "utf-32-le")),
    "utf-32-be": ("utf-32-be", b"", ("utf-32-be",)),
    "utf-32-le": ("utf-32-le", b"", ("utf-32-le",)),
}
_HALF_IN_UTF_8: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


def string(encoding: str = "utf-8", *, strict: bool = False) -> Serde[str]:
    """Text in an encoding, UTF-8 by default; raises LookupError for an unknown one.

    As in Java, a character that the encoding lacks is written as its replacement (`?` in most), and
    invalid bytes become U+FFFD. With `strict`, both raise instead.
    """
    name = codecs.lookup(encoding).name
    return _marked(name, strict=strict) if name in _MARKED else _plain(name, strict=strict)


def _plain(name: str, *, strict: bool) -> Serde[str]:
    def write(topic: str, value: str) -> bytes:
        try:
            return value.encode(name)
        except (AttributeError, UnicodeEncodeError):
            check_kind(value, str)
            if strict:
                raise
            return _replacing(value, name)

    def read(topic: str, data: bytes) -> str:
        try:
            return data.decode(name)
        except UnicodeDecodeError:
            if strict:
                raise
            if name == "utf-8":  # Java counts half a character as one error, Python its bytes
                data = _HALF_IN_UTF_8.sub(b"\xff", data)
            return data.decode(name, "replace")

    return Serde(write, read)


def _replacing(text: str, name: str) -> bytes:
    """Encode with replacements for characters that the encoding lacks."""
    # Java treats two adjacent surrogates as one character.
    units = text.encode("utf-16-be", "surrogatepass")
    if name.startswith(("utf-16", "utf-32")):
        return units.decode("utf-16-be", "replace").encode(name)
    return units.decode("utf-16-be", "surrogatepass").encode(name, "replace")


def _marked(name: str, *, strict: bool) -> Serde[str]:
    written, mark, read_as = _MARKED[name]
    plain = _plain(written, strict=strict)
    unmarked = _plain(read_as[0], strict=strict)
    by_mark = {"\ufeff".encode(one): _plain(one, strict=strict) for one in read_as}

    def write(topic: str, value: str) -> bytes | None:
        data = plain.serialize(topic, value)
        return mark + data if data else data

    def read(topic: str, data: bytes) -> str:
        for found, marked in by_mark.items():
            if data.startswith(found):
                return marked.deserialize(topic, data[len(found) :])
        return unmarked.deserialize(topic, data)

    return Serde(write, read)
