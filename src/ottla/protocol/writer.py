"""Generates writers: one function per message and version that encodes to a list of buffers.

Invariant: the reader of the same version decodes the bytes to an equal value. A field that the
version lacks must have its default, unless the field is `ignorable`.
"""

from collections.abc import Callable
from struct import Struct as Layout
from struct import pack
from typing import Any, Final, NoReturn

from ottla.errors import OttlaError
from ottla.protocol.function_source import FunctionSource
from ottla.protocol.primitives import Buffer, uvarint
from ottla.protocol.reader import SHORT, STRING_BYTES_MAX
from ottla.protocol.schema import NEVER, Field, Kind, Struct, Versions

Writer = Callable[[Any, list[Buffer]], None]
"""Appends the bytes of a message to a list of buffers.

Records are not copied: they are buffers of their own.
"""


class EncodingError(OttlaError):
    """The version cannot carry a value of the message: an error of the caller."""


def compile_writer(cls: type[Struct], version: int, flexible: Versions) -> Writer:
    """Compile the writer of one version of a message."""
    return _WriterSource(version, version in flexible).compile(cls)


def _absent(name: str, version: int) -> NoReturn:
    raise EncodingError(f"{name} is set, but version {version} does not have it")


def _text_bytes(name: str, length: int) -> NoReturn:
    raise EncodingError(f"{name} has {length} bytes; at most {STRING_BYTES_MAX} are allowed")


def _bad_uuid(name: str) -> NoReturn:
    raise EncodingError(f"{name} does not have 16 bytes")


_NAMES: Final[dict[str, object]] = {
    "absent": _absent,
    "bad_uuid": _bad_uuid,
    "too_long": _text_bytes,
    "uvarint": uvarint,
    "pack": pack,
}


class _WriterSource:
    """Generates the source of one writer."""

    def __init__(self, version: int, flexible: bool) -> None:
        self._version = version
        self._flexible = flexible
        self._source = FunctionSource("write(message, buffers)")
        self._source.names.update(_NAMES)
        self._out = "out"
        self._run: list[tuple[str, str]] = []  # formats and expressions to pack

    def compile(self, cls: type[Struct]) -> Writer:
        self._source.line("out = bytearray()")
        self._struct(cls, "message")
        self._flush()
        self._source.line("if out or not buffers: buffers.append(out)")
        return self._source.compile()

    def _flush(self) -> None:
        """Pack the run."""
        run, self._run = self._run, []
        if not run:
            return
        if run[0][0] == "B" and len(run) == 1:
            self._source.line(f"{self._out}.append({run[0][1]})")
            return
        layout = self._source.layout("".join(format_ for format_, _ in run), pack=True)
        self._source.line(f"{self._out} += {layout}({', '.join(value for _, value in run)})")

    def _struct(self, cls: type[Struct], value: str) -> None:
        tagged: list[Field] = []
        for field in cls.FIELDS:
            if self._version in field.tagged:
                tagged.append(field)
            elif self._version in field.versions:
                self._field(field, f"{value}.{field.name}")
            elif not field.ignorable:
                condition = self._differs(field, f"{value}.{field.name}")
                self._source.line(f"if {condition}: absent({field.name!r}, {self._version})")
        if self._flexible:
            self._tags(sorted(tagged, key=lambda field: field.tag or 0), value)

    def _differs(self, field: Field, value: str) -> str:
        """Return an expression that is true if a field differs from its default."""
        if field.kind is Kind.STRUCT and field.nullable == NEVER:
            assert field.struct is not None
            defaults = self._source.constant("default", field.struct())
            return f"{value} is not None and {value} != {defaults}"
        if field.default is None:
            return f"{value} is not None"
        if field.kind is Kind.STRUCT:
            return f"{value} != {self._source.constant('default', field.default)}()"
        if field.kind in (Kind.ARRAY, Kind.STRING, Kind.BYTES, Kind.RECORDS) and not field.default:
            if field.nullable == NEVER:
                return f"len({value})"
            return f"({value} is None or len({value}))"
        if field.kind is Kind.UUID:
            return f"{value} != {self._source.constant('default', field.default)}"
        return f"{value} != {field.default!r}"

    def _field(self, field: Field, value: str) -> None:
        if field.kind is Kind.BOOL:
            self._run.append(("b", value))  # "?" would accept any object
        elif field.kind is Kind.UUID:
            # "16s" would pad or truncate other lengths.
            self._source.line(f"if len({value}) != 16: bad_uuid({field.name!r})")
            self._run.append((field.kind.value, value))
        elif field.kind.fixed_size is not None:
            self._run.append((field.kind.value, value))
        elif field.kind is Kind.STRUCT:
            self._struct_field(field, value)
        else:
            self._with_length(field, value)

    def _struct_field(self, field: Field, value: str) -> None:
        assert field.struct is not None
        if self._version not in field.nullable:
            self._struct(field.struct, value)
            return
        in_tag = self._version in field.tagged
        self._flush()
        with self._source.block(f"if {value} is None:"):
            self._source.line(f"{self._out}.append({0 if in_tag else 255})")
        with self._source.block("else:"):
            self._run.append(("B", "1"))
            self._struct(field.struct, value)
            self._flush()

    def _with_length(self, field: Field, value: str) -> None:
        """Write a string, bytes, records or an array, or null if it is allowed."""
        if self._version not in field.nullable:
            self._present(field, value)
            return
        local = self._source.fresh("v")
        self._source.line(f"{local} = {value}")
        before = list(self._run)  # packed in both branches, together with the next value
        with self._source.block(f"if {local} is None:"):
            null = ("B", "0") if self._flexible else (self._length_format(field.kind), "-1")
            self._run.append(null)
            self._flush()
        self._run = before
        with self._source.block("else:"):
            self._present(field, local)
            self._flush()

    def _present(self, field: Field, value: str) -> None:
        if field.kind is not Kind.ARRAY:
            self._text(field.name, field.kind, value)
            return
        assert field.element is not None
        if field.element.fixed_size is not None:
            self._fixed_elements(field.element, value)
            return
        items = self._source.fresh("items")
        self._source.line(f"{items} = {value}")
        self._length(f"len({items})", Kind.ARRAY)
        self._flush()
        item = self._source.fresh("item")
        with self._source.block(f"for {item} in {items}:"):
            if field.struct is not None:
                self._struct(field.struct, item)
            else:
                self._text(field.name, Kind.STRING, item)
            self._flush()

    @staticmethod
    def _length_format(kind: Kind) -> str:
        return "h" if kind is Kind.STRING else "i"

    def _length(self, length: str, kind: Kind) -> None:
        if not self._flexible:
            self._run.append((self._length_format(kind), length))
            return
        local = self._source.fresh("n")
        self._source.line(f"{local} = {length} + 1")
        before = list(self._run)
        with self._source.block(f"if {local} < 128:"):
            self._run.append(("B", local))
            self._flush()
        self._run = before
        with self._source.block("else:"):
            self._flush()
            self._source.line(f"{self._out} += uvarint({local})")

    def _text(self, name: str, kind: Kind, value: str) -> None:
        if kind is Kind.STRING:
            raw, size = self._source.fresh("raw"), self._source.fresh("size")
            self._source.line(f"{raw} = {value}.encode()")
            self._source.line(f"{size} = len({raw})")
            self._source.line(f"if {size} > {STRING_BYTES_MAX}: too_long({name!r}, {size})")
            self._length(size, kind)
        else:
            raw = value
            self._length(f"len({raw})", kind)
        self._flush()
        if kind is Kind.RECORDS:
            assert self._out == "out", "records in a tagged field"
            with self._source.block(f"if len({raw}):"):
                self._source.line(f"buffers += (out, {raw})")
                self._source.line("out = bytearray()")
        else:
            self._source.line(f"{self._out} += {raw}")

    def _fixed_elements(self, element: Kind, value: str) -> None:
        source = self._source
        prefix = "B" if self._flexible else "i"
        layouts = f"short_{prefix}_{element.name}"
        if layouts not in source.names:
            source.names[layouts] = tuple(
                Layout(f">{prefix}{element.value * n}").pack for n in range(SHORT)
            )
        self._flush()
        items, count = source.fresh("items"), source.fresh("n")
        source.line(f"{items} = {value}")
        source.line(f"{count} = len({items})")
        one_more = " + 1" if self._flexible else ""
        with source.block(f"if {count} < {SHORT}:"):
            source.line(f"{self._out} += {layouts}[{count}]({count}{one_more}, *{items})")
        with source.block("else:"):
            self._length(count, Kind.ARRAY)
            self._flush()
            # The struct module caches formats, so use a repeat count, not a letter per element.
            formats = f'f">{{{count}}}{element.value}"'
            source.line(f"{self._out} += pack({formats}, *{items})")

    def _tags(self, fields: list[Field], value: str) -> None:
        if not fields:
            self._run.append(("B", "0"))
            return
        source = self._source
        self._flush()
        conditions = [self._differs(field, f"{value}.{field.name}") for field in fields]
        with source.block(f"if {' or '.join(f'({c})' for c in conditions)}:"):
            outer = self._out
            pieces, piece = source.fresh("pieces"), source.fresh("piece")
            source.line(f"{pieces} = []")
            for field, condition in zip(fields, conditions, strict=True):
                with source.block(f"if {condition}:"):
                    source.line(f"{piece} = bytearray()")
                    self._out = piece
                    self._field(field, f"{value}.{field.name}")
                    self._flush()
                    self._out = outer
                    source.line(f"{pieces}.append(uvarint({field.tag}) + uvarint(len({piece})))")
                    source.line(f"{pieces}.append({piece})")
            source.line(f"{outer}.append(len({pieces}) >> 1)")
            source.line(f"{outer} += b''.join({pieces})")
        with source.block("else:"):
            source.line(f"{outer}.append(0)")
