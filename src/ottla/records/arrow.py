"""Converts columns to and from pyarrow, which is imported when it is first needed.

Buffers of binary, string and their large forms are shared, not copied, also those of a slice.
pyarrow casts other types to binary first.
"""

import sys
from functools import cache
from typing import Any, Final

from ottla.protocol.primitives import Buffer
from ottla.records.columns import Column, Columns, Headers
from ottla.release import how_to_install

_EMPTY_OFFSETS: Final = bytes(8)  # pyarrow may have no offsets buffer for an empty array


def pyarrow_module() -> Any:
    """Import pyarrow; raise an ImportError that names the extra to install."""
    try:
        import pyarrow
    except ImportError:
        raise ImportError(
            f"Arrow columns need pyarrow: {how_to_install('arrow')}", name="pyarrow"
        ) from None
    return pyarrow


def to_arrow(columns: Columns) -> Any:
    """Return a pyarrow.RecordBatch that shares the buffers.

    Its columns are offset (if known), timestamp, key, value and headers.
    """
    arrays = arrow_arrays(columns)
    return pyarrow_module().RecordBatch.from_arrays([*arrays.values()], names=[*arrays])


def arrow_arrays(columns: Columns) -> dict[str, Any]:
    """Return the columns of `to_arrow` by name."""
    pa = pyarrow_module()
    rows = columns.rows
    arrays: dict[str, Any] = {}
    if columns.offsets is not None:
        arrays["offset"] = pa.Array.from_buffers(
            pa.int64(), rows, [None, pa.py_buffer(columns.offsets)]
        )
    arrays["timestamp"] = pa.Array.from_buffers(
        pa.timestamp("ms", tz="UTC"), rows, [None, pa.py_buffer(columns.timestamps)]
    )
    arrays["key"] = _binary(pa, columns.keys, rows)
    arrays["value"] = _binary(pa, columns.values, rows)
    arrays["headers"] = _header_lists(pa, columns.headers, rows)
    return arrays


def _binary(pa: Any, column: Column | None, rows: int, *, text: bool = False) -> Any:
    if column is None:
        return pa.nulls(rows, pa.binary())
    narrow, large = (pa.utf8(), pa.large_utf8()) if text else (pa.binary(), pa.large_binary())
    validity = None if column.validity is None else pa.py_buffer(column.validity)
    return pa.Array.from_buffers(
        large if column.large else narrow,
        column.length,
        [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)],
        offset=column.start,
    )


def _header_lists(pa: Any, headers: Headers | None, rows: int) -> Any:
    if headers is None:
        empty = Column(_EMPTY_OFFSETS, b"", None, 0)
        headers = Headers(bytes(4 * rows + 4), None, empty, empty, rows)
    if headers.keys.length or headers.keys.large or headers.values.large:
        pairs = _header_pairs(pa, headers.keys, headers.values)
    else:
        pairs = _no_header_pairs()
    validity = None if headers.validity is None else pa.py_buffer(headers.validity)
    return pa.Array.from_buffers(
        (pa.large_list if headers.large else pa.list_)(pairs.type),
        headers.length,
        [validity, pa.py_buffer(headers.offsets)],
        offset=headers.start,
        children=[pairs],
    )


def _header_pairs(pa: Any, keys: Column, values: Column) -> Any:
    names = _binary(pa, keys, keys.length, text=True)
    data = _binary(pa, values, values.length)
    pair = pa.struct([pa.field("key", names.type, nullable=False), pa.field("value", data.type)])
    # StructArray.from_arrays takes twice as long.
    return pa.Array.from_buffers(pair, keys.length, [None], children=[names, data])


@cache
def _no_header_pairs() -> Any:
    """Return no pairs; made once, because most batches have no headers."""
    nothing = Column(_EMPTY_OFFSETS, b"", None, 0)
    return _header_pairs(pyarrow_module(), nothing, nothing)


def from_arrow(batch: Any, *, now_ms: int | None = None) -> Columns:
    """Return columns that share the buffers of a RecordBatch.

    The batch has some of the columns timestamp, key, value and headers. `now_ms` is the timestamp
    of rows without one. Headers are maps, or lists of structs with the fields key and value. Raise
    ValueError for other types.
    """
    pa = pyarrow_module()
    by_name: dict[str, Any] = dict(zip(batch.schema.names, batch.columns, strict=True))
    return Columns(
        batch.num_rows,
        _timestamps(pa, by_name.get("timestamp"), batch.num_rows, now_ms),
        _column(pa, by_name.get("key")),
        _column(pa, by_name.get("value")),
        _headers(pa, by_name.get("headers")),
    )


def binary_column(array: Any) -> Column:
    """Return an array of binary or string as a column, for the kernel."""
    column = _column(pyarrow_module(), array)
    if column is None:
        return Column(bytes(4 * len(array) + 4), b"", bytes((len(array) + 7) // 8), len(array))
    return column


def _flat(array: Any) -> Any:
    """Combine the chunks of a chunked array, and decode a dictionary array."""
    if hasattr(array, "combine_chunks"):
        array = array.combine_chunks()
    return array.dictionary_decode() if hasattr(array, "dictionary_decode") else array


def _timestamps(pa: Any, array: Any, rows: int, now_ms: int | None) -> Buffer:
    if array is None or pa.types.is_null(array.type):
        if now_ms is None:
            raise ValueError("the timestamp column is missing and now_ms is not set")
        return now_ms.to_bytes(8, sys.byteorder, signed=True) * rows
    array = _flat(array)
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp("ms", tz=array.type.tz), safe=False)
    elif not pa.types.is_int64(array.type):
        raise ValueError(f"the timestamp column must be int64 or timestamp, not {array.type}")
    if array.null_count:
        if now_ms is None:
            raise ValueError("a row has a null timestamp and now_ms is not set")
        array = array.cast(pa.int64()).fill_null(now_ms)
    values = array.buffers()[1]
    if values is None:
        return b""
    return memoryview(values)[array.offset * 8 : (array.offset + len(array)) * 8]


def _column(pa: Any, array: Any) -> Column | None:
    if array is None or pa.types.is_null(array.type):
        return None
    array = _flat(array)
    kind = array.type
    large = pa.types.is_large_binary(kind) or pa.types.is_large_string(kind)
    if not (large or pa.types.is_binary(kind) or pa.types.is_string(kind)):
        try:
            array = array.cast(pa.binary())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise ValueError(
                f"keys, values and headers must be binary or string, not {kind}"
            ) from None
    validity, offsets, data = array.buffers()
    return Column(
        memoryview(offsets) if offsets else _EMPTY_OFFSETS,
        memoryview(data) if data else b"",
        memoryview(validity) if validity and array.null_count else None,
        len(array),
        array.offset,
        large,
    )


def _headers(pa: Any, array: Any) -> Headers | None:
    if array is None or pa.types.is_null(array.type):
        return None
    array = _flat(array)
    kind = array.type
    large = pa.types.is_large_list(kind)
    if pa.types.is_map(kind):
        keys, values = array.keys, array.items
    elif (large or pa.types.is_list(kind)) and pa.types.is_struct(kind.value_type):
        pairs = array.values
        names = [pairs.type.field(number).name for number in range(pairs.type.num_fields)]
        if sorted(names) != ["key", "value"]:
            raise ValueError(f"a header must be a struct of key and value, not {pairs.type}")
        parts = pairs.flatten()  # a null header gets a null key, which the encoder rejects
        keys, values = (parts[names.index(name)] for name in ("key", "value"))
    else:
        raise ValueError(f"headers must be maps or lists of structs, not {kind}")
    validity, offsets = array.buffers()[:2]
    return Headers(
        memoryview(offsets) if offsets else _EMPTY_OFFSETS,
        memoryview(validity) if validity and array.null_count else None,
        binary_column(keys),
        binary_column(values),
        len(array),
        array.offset,
        large,
    )
