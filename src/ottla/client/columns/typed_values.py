"""JSON or Avro values as typed columns.

Invariant: a value is decoded completely or refused, with its partition and offset; rows keep their
order. JSON creates no Python object per record; Avro objects live for a few hundred rows.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol, cast

from ottla.client.columns.arrow import consumed
from ottla.client.columns.avro_types import arrow_type, plain_uuids
from ottla.client.serializers import DeserializationFailed
from ottla.client.serializers.avro_schema import schema_of
from ottla.client.serializers.documents import avro
from ottla.ids import TopicPartition
from ottla.records import Columns
from ottla.records.arrow import pyarrow_module

PLACE_COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "key")
"""The columns of each record besides its value."""

AVRO_ROWS: Final = 500

_NOT_AN_OBJECT: Final = "not a JSON object"
_EMPTY: Final = "The document is empty"
_NO_NUMBER: Final = "changed from number to string"
_SCHEMAS: Final = (
    "value_schema must be a pyarrow.Schema for JSON, or an Avro schema as JSON text or dict"
)


class Form(Protocol):
    """Decodes values."""

    names: list[str]

    def read(self, values: Any) -> list[Any]:
        """Decode an array of bytes into named columns; raises ValueError if a value is bad."""
        ...


def form_of(schema: Any) -> Form:
    """Return the decoder for a schema: Arrow for JSON; Avro as text or dict."""
    pa = pyarrow_module()
    if isinstance(schema, pa.Schema):
        return _Json(schema)
    if not isinstance(schema, str | Mapping):
        raise TypeError(f"{_SCHEMAS}, not {type(schema).__name__}")
    try:
        found: Any = schema_of(cast("str | Mapping[str, object]", schema))
        return _Avro(found if isinstance(found, Mapping) else {"type": found})
    except ImportError:
        raise
    # A parser may raise anything for an invalid schema.
    except Exception as error:
        raise ValueError(f"{_SCHEMAS}; this one cannot be used: {_why(error)}") from error


def typed(
    form: Form,
    bad_record: Callable[[DeserializationFailed], object] | None,
    partition: TopicPartition,
    columns: Columns,
) -> tuple[Any, DeserializationFailed | None]:
    """Return position, key and value columns, and the error that ended them early.

    With `bad_record`, that is called for each bad value and its row is left out.
    """
    pa = pyarrow_module()
    whole = consumed(partition, columns)
    values = whole.column("value")
    places = whole.select(PLACE_COLUMNS)
    names = [*PLACE_COLUMNS, *form.names]
    parts: list[Any] = []
    failure: DeserializationFailed | None = None
    for start, stop, found in _runs(form, values, 0, len(values)):
        if isinstance(found, ValueError):
            offset = whole.column("offset")[start].as_py()
            data = values[start].as_py() or b""
            failed = DeserializationFailed(*partition, offset, "value", data, str(found))
            failed.__cause__ = found
            if bad_record is None:
                failure = failed
                break
            bad_record(failed)
            continue
        arrays = [*places.slice(start, stop - start).columns, *found]
        parts.append(pa.RecordBatch.from_arrays(arrays, names=names))
    if len(parts) > 1:
        parts = pa.Table.from_batches(parts).combine_chunks().to_batches()
    return (parts[0] if parts else None), failure


def _runs(
    form: Form, values: Any, start: int, stop: int
) -> Iterator[tuple[int, int, list[Any] | ValueError]]:
    """Yield runs of rows that decode together, and bad rows one by one.

    A failing run is halved, so that a few bad rows cost little.
    """
    try:
        found = form.read(values.slice(start, stop - start))
    except ValueError as error:
        if stop - start == 1:
            yield start, stop, error
            return
    else:
        yield start, stop, found
        return
    middle = (start + stop) // 2
    yield from _runs(form, values, start, middle)
    yield from _runs(form, values, middle, stop)


def _names(given: list[str]) -> list[str]:
    """Return the column names of a value; names of record columns get a prefix."""
    names = [f"value.{name}" if name in PLACE_COLUMNS else name for name in given]
    if len({*names}) < len(names):
        raise ValueError(f"value_schema has a duplicate name: {', '.join(names)}")
    return names


class _Json:
    """JSON objects with an Arrow schema."""

    def __init__(self, schema: Any) -> None:
        pa = pyarrow_module()
        self.names = _names(schema.names)
        self._schema = schema.remove_metadata()
        self._has_dates = any(map(pa.types.is_date, schema.types))
        if strict := [field.name for field in schema if not field.nullable]:
            raise ValueError(
                f"value_schema has fields that are not nullable ({', '.join(strict)}): make them "
                "nullable, because all fields of a record without a value are null"
            )
        try:
            self.read(pa.nulls(1, pa.binary()))
        except (ValueError, NotImplementedError) as error:
            raise ValueError(f"value_schema cannot be used for JSON: {error}") from error

    def read(self, values: Any) -> list[Any]:
        """Decode the fields of objects; missing ones are null, unknown ones are left out."""
        pa = pyarrow_module()
        import pyarrow.compute
        import pyarrow.json

        compute: Any = pyarrow.compute
        json: Any = pyarrow.json
        if not len(values):
            return [pa.nulls(0, kind) for kind in self._schema.types]
        # The parser reads one object after the other from one text and ignores where a value ends.
        # But values that start with { and end with } cannot merge with a neighbour into one object,
        # because } is never followed by {. So the number of objects equals the number of values
        # exactly if each value is one object.
        text = _braced(values.cast(pa.utf8()))  # the parser does not check UTF-8 either
        joined = compute.binary_join_element_wise(
            text,
            "",
            "\n",  # the separator, so it ends each line
            null_handling="replace",
            null_replacement="{}",
        )
        data = joined.buffers()[2]
        try:
            lines = json.read_json(
                pa.BufferReader(data),
                read_options=json.ReadOptions(use_threads=False, block_size=len(data) + 1),
                parse_options=json.ParseOptions(
                    explicit_schema=self._schema, unexpected_field_behavior="ignore"
                ),
            )
        except ValueError as error:
            if _EMPTY in str(
                error
            ):  # the parser's message for a value that is not an object, after another
                raise ValueError(f"{_NOT_AN_OBJECT}, or more than one") from error
            if self._has_dates and _NO_NUMBER in str(error):
                raise ValueError(
                    f"{error}; a date must be a number of days since 1970; for text such as "
                    "2024-01-01 use a field of type pyarrow.timestamp('s')"
                ) from error
            raise
        if lines.num_rows != len(values):
            raise ValueError("more than one JSON object")
        return [column.combine_chunks() for column in lines.columns]


def _why(error: Exception) -> str:
    return str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"


def _braced(text: Any) -> Any:
    """Return the texts, which start with { and end with } or are null; raises ValueError."""
    import pyarrow.compute

    compute: Any = pyarrow.compute
    for is_trimmed in (False, True):
        if is_trimmed:  # rare: spaces around the object, or null
            text = compute.utf8_trim(text, characters=" \t\r\n")
            text = compute.if_else(compute.equal(text, "null"), None, text)
        braced = compute.and_(compute.starts_with(text, "{"), compute.ends_with(text, "}"))
        if compute.all(braced).as_py() is not False:  # null if all values are null
            return text
    raise ValueError(_NOT_AN_OBJECT)


class _Avro:
    """Avro's binary encoding."""

    def __init__(self, schema: Any) -> None:
        pa = pyarrow_module()
        self._read = avro(plain_uuids(schema)).deserialize
        self._type = arrow_type(schema)
        self._is_record = pa.types.is_struct(self._type)
        fields = [self._type.field(number).name for number in range(self._type.num_fields)]
        self.names = _names(fields) if self._is_record else ["value"]

    def read(self, values: Any) -> list[Any]:
        """Decode the fields of records, or another schema as one column."""
        pa = pyarrow_module()
        parts = [pa.array([], self._type)]
        for start in range(0, len(values), AVRO_ROWS):
            data = values.slice(start, AVRO_ROWS).to_pylist()
            try:
                rows = [None if one is None else self._read("", one) for one in data]
                parts.append(pa.array(rows, self._type))
            # A reader may raise anything for bytes of another schema.
            except Exception as error:
                raise ValueError(
                    f"the bytes do not match the Avro schema: {_why(error)}"
                ) from error
        array = pa.concat_arrays(parts)
        return array.flatten() if self._is_record else [array]
