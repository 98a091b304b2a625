"""Compresses and decompresses the records of a batch with Kafka's five codecs.

Invariant: whatever the input declares, `decompress` never returns or allocates more than `limit`
bytes, and its time is linear in the input and `limit`. Damaged input raises CorruptCompression or
DecompressionLimitExceeded only.

Each call creates its own codec context. A shared one would save 5 µs of the 25 µs that
decompressing 16 KB of zstd takes, and nothing measurable at 1 MB. It would be state that brokers
and threads share. Codec libraries are imported on first use.
"""

import sys
import zlib
from collections.abc import Callable, Container, Iterator, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final, Protocol, Self, TypeAlias, cast

from ottla.protocol.primitives import Buffer
from ottla.records import snappy
from ottla.records.errors import CorruptCompression, DecompressionLimitExceeded


class Compression(IntEnum):
    """A codec; its value is bits 0 to 2 of the batch attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def label(self) -> str:
        """Return the name in Kafka's settings, such as `zstd`."""
        return self.name.lower()

    @classmethod
    def named(cls, label: str) -> Self:
        """Return the codec with a label; raise ValueError if there is none."""
        for kind in cls:
            if kind.label == label:
                return kind
        labels = ", ".join(kind.label for kind in cls)
        raise ValueError(f"unknown compression {label!r}; choose one of {labels}")


# The levels that Kafka's settings allow (KIP-390). Snappy and none have no levels.
_LEVELS: Final[Mapping[Compression, Container[int]]] = MappingProxyType(
    {
        Compression.GZIP: frozenset({-1, *range(1, 10)}),
        Compression.LZ4: range(1, 18),
        Compression.ZSTD: range(-131072, 23),
    }
)


def compress(kind: Compression, data: Buffer, level: int | None = None) -> bytes:
    """Compress `data`; level None is Kafka's default, an invalid level raises ValueError."""
    if level is not None and level not in _LEVELS.get(kind, ()):
        raise ValueError(f"{kind.label} has no compression level {level}")
    match kind:
        case Compression.NONE:
            return bytes(data)
        case Compression.GZIP:
            return zlib.compress(data, -1 if level is None else level, _GZIP_WINDOW_BITS)
        case Compression.SNAPPY:
            return snappy.compress(data)
        case Compression.LZ4:
            return _compress_lz4(data, level)
        case Compression.ZSTD:
            return _compress_zstd(data, 3 if level is None else level)


def decompress(kind: Compression, data: Buffer, limit: int) -> bytes:
    """Decompress `data` into at most `limit` bytes.

    Raise CorruptCompression for data that is damaged, truncated, empty or followed by other bytes.
    Raise DecompressionLimitExceeded if the result has more than `limit` bytes.
    """
    view = memoryview(data)
    if kind is Compression.NONE:
        if len(view) > limit:
            raise DecompressionLimitExceeded(limit)
        return bytes(data)
    if not view:
        raise CorruptCompression(f"{kind.label}: no data")
    pieces: list[Buffer] = []
    produced = 0
    for piece in _READERS[kind](view, limit):
        produced += len(piece)
        if produced > limit:
            raise DecompressionLimitExceeded(limit)
        pieces.append(piece)
    return bytes(pieces[0]) if len(pieces) == 1 else b"".join(pieces)


# The readers below yield pieces that together exceed `limit` by at most one byte. That byte shows
# that the data exceeds the limit.


class _Decoder(Protocol):
    """The methods that the decompressors of the standard library share."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: memoryview, /, max_length: int) -> bytes: ...


# A decompressor copies the bytes after its member, and holds twice the output of a step, which may
# be a thousand times the input. Small steps keep both small: many tiny members take time in
# proportion to their bytes, and a decompression bomb takes no more memory than the limit. The
# output of a step is copied while the GIL is held, so steps with much output become smaller still.
_STEP_BYTES: Final = 8 * 1024
_STEP_BYTES_MIN: Final = 256
_PIECE_BYTES: Final = 256 * 1024

_ROOM_BYTES: Final = 256 * 1024  # for the first piece of a frame that is read in steps

# Java's readers continue after the end of a gzip member or a zstd frame, and so does Ottla. Writers
# write one. A large number of them is an attack on the CPU.
_MEMBERS_MAX: Final = 1000


def _read_members(
    name: str, decoder: Callable[[], _Decoder], view: memoryview, limit: int
) -> Iterator[bytes]:
    position = produced = members = 0
    while position < len(view):
        members += 1
        if members > _MEMBERS_MAX:
            raise CorruptCompression(f"{name}: more than {_MEMBERS_MAX} members in one batch")
        member = decoder()
        step_bytes = _STEP_BYTES_MIN
        while not member.eof:
            if position == len(view):
                raise CorruptCompression(f"{name}: the data is truncated")
            step = view[position : position + step_bytes]
            piece = member.decompress(step, limit - produced + 1)
            produced += len(piece)
            position += len(step)
            grows = len(piece) * _STEP_BYTES > len(step) * _PIECE_BYTES
            step_bytes = _STEP_BYTES_MIN if grows else _STEP_BYTES
            yield piece
        position -= len(member.unused_data)


# gzip

_GZIP_WINDOW_BITS: Final = 16 + zlib.MAX_WBITS  # 16 stands for the gzip header and trailer


def _read_gzip(view: memoryview, limit: int) -> Iterator[bytes]:
    try:
        yield from _read_members("gzip", lambda: zlib.decompressobj(_GZIP_WINDOW_BITS), view, limit)
    except zlib.error as error:
        raise CorruptCompression(f"gzip: {error}") from None


# LZ4. Kafka accepts only frames of independent blocks.


class _Lz4Frame(Protocol):
    """The functions of `lz4.frame` that are used here; the library has no types."""

    def compress(
        self, data: Buffer, *, compression_level: int, block_linked: bool, store_size: bool
    ) -> bytes: ...

    def create_decompression_context(self) -> object: ...

    def decompress_chunk(
        self, context: object, data: memoryview, *, max_length: int
    ) -> tuple[bytes, int, bool]: ...


_LZ4_BLOCK_BYTES: Final = 64 * 1024
_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_FLAGS_KEPT: Final = 0b1110_0011  # version, independence, reserved, dictionary
_LZ4_FLAGS_TAKEN: Final = 0b0110_0000  # version 1, independent blocks, nothing else

# Kafka's default level is called 9 but uses the fast compressor. The other levels use the high
# compressor, which is 20 times slower.
_LZ4_LEVEL_DEFAULT: Final = 9
_LZ4_LEVEL_FAST: Final = 0


def _lz4_frame() -> _Lz4Frame:
    import lz4.frame

    return cast("_Lz4Frame", lz4.frame)


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    if level is None or level == _LZ4_LEVEL_DEFAULT:
        level = _LZ4_LEVEL_FAST
    # As Java's writer: blocks of 64 KB, which is the default of the library, no content size. No
    # content checksum either, because Java's reader computes another one for several blocks.
    return _lz4_frame().compress(
        data, compression_level=level, block_linked=False, store_size=False
    )


def _read_lz4(view: memoryview, limit: int) -> Iterator[bytes]:
    if len(view) < 7 or bytes(view[:4]) != _LZ4_MAGIC:
        raise CorruptCompression("lz4: the data does not start with a frame")
    if view[4] & _LZ4_FLAGS_KEPT != _LZ4_FLAGS_TAKEN:
        raise CorruptCompression("lz4: only version 1 with independent blocks is supported")
    frame = _lz4_frame()
    context = frame.create_decompression_context()
    position = produced = 0
    ended = False
    try:
        while not ended:
            # The library allocates `max_length` immediately. Records compress to about a quarter,
            # so that one step is usually enough.
            room = min(limit - produced + 1, 4 * len(view) + _LZ4_BLOCK_BYTES)
            piece, consumed, ended = frame.decompress_chunk(
                context, view[position:], max_length=room
            )
            if not piece and not consumed and not ended:
                raise CorruptCompression("lz4: the data is truncated")
            produced += len(piece)
            position += consumed
            yield piece
    except RuntimeError as error:
        raise CorruptCompression(f"lz4: {error}") from None
    # Java's reader stops at the end of the first frame, and would lose a second one.
    if position < len(view):
        raise CorruptCompression("lz4: bytes follow the end of the frame")


# zstd, from the standard library if it has it.

# The maximum of zstd, which its highest level uses. The window is allocated immediately, but only
# the pages that receive output are touched.
_ZSTD_WINDOW_LOG_MAX: Final = 27

if sys.version_info >= (3, 14):

    def _compress_zstd(data: Buffer, level: int) -> bytes:
        from compression import zstd

        return zstd.compress(data, level)

    def _read_zstd(view: memoryview, limit: int) -> Iterator[bytes]:
        from compression import zstd

        options = {zstd.DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG_MAX}
        try:
            yield from _read_members(
                "zstd", lambda: zstd.ZstdDecompressor(options=options), view, limit
            )
        except zstd.ZstdError as error:
            raise CorruptCompression(f"zstd: {error}") from None

else:

    def _compress_zstd(data: Buffer, level: int) -> bytes:
        import zstandard

        return zstandard.ZstdCompressor(level=level).compress(data)

    def _read_zstd(view: memoryview, limit: int) -> Iterator[bytes]:
        import zstandard

        produced = 0
        decompressor = zstandard.ZstdDecompressor(max_window_size=1 << _ZSTD_WINDOW_LOG_MAX)
        try:
            for frame, capacity in _zstd_frames(view):
                declared = zstandard.frame_content_size(frame)
                if declared > limit - produced:
                    raise DecompressionLimitExceeded(limit)
                if declared > capacity:
                    raise CorruptCompression("zstd: a frame declares more than it can hold")
                if declared > 0 or (declared < 0 and capacity <= limit - produced):
                    piece = decompressor.decompress(frame, max_output_size=capacity)
                    produced += len(piece)
                    yield piece
                    continue
                # The frame may exceed the limit, so it is read in steps.
                reader = decompressor.stream_reader(frame)
                ended = False
                while not ended:
                    room = min(limit - produced + 1, 4 * len(frame) + _ROOM_BYTES)
                    piece = reader.read(room)
                    ended = len(piece) < room
                    produced += len(piece)
                    yield piece
        except zstandard.ZstdError as error:
            raise CorruptCompression(f"zstd: {error}") from None


_ZSTD_SKIPPABLE: Final = range(0x184D2A50, 0x184D2A60)  # magic numbers of frames to skip
_ZSTD_BLOCK_RLE: Final = 1
_ZSTD_BLOCK_BYTES_MAX: Final = 128 * 1024


def _zstd_frames(view: memoryview) -> Iterator[tuple[memoryview, int]]:
    """Split the data into frames by the lengths of their blocks; yield each with its capacity.

    The stream reader of the library reports neither a truncated frame nor bytes after it. Its other
    functions need to know how much memory a frame may need.
    """
    import zstandard

    position = frames = 0
    while position < len(view):
        frames += 1
        if frames > _MEMBERS_MAX:
            raise CorruptCompression(f"zstd: more than {_MEMBERS_MAX} frames in one batch")
        start = position
        if int.from_bytes(view[start : start + 4], "little") in _ZSTD_SKIPPABLE:
            position += 8 + int.from_bytes(view[start + 4 : start + 8], "little")
        else:
            header = zstandard.get_frame_parameters(view[start:])
            position += zstandard.frame_header_size(view[start:])
            position, blocks = _zstd_blocks(view, position)
            position += 4 if header.has_checksum else 0
            if position <= len(view):
                yield view[start:position], blocks * _ZSTD_BLOCK_BYTES_MAX
    if position > len(view):
        raise CorruptCompression("zstd: the data is truncated")


def _zstd_blocks(view: memoryview, position: int) -> tuple[int, int]:
    """Return the end of the last block, past the view if truncated, and the number of blocks."""
    blocks = 0
    empty = 0
    while position + 3 <= len(view):
        block = view[position] | view[position + 1] << 8 | view[position + 2] << 16
        size = 1 if block >> 1 & 3 == _ZSTD_BLOCK_RLE else block >> 3
        position += 3 + size
        blocks += 1
        # A flush writes an empty block. A large number of them is an attack on the CPU.
        empty += not block >> 3
        if empty > _MEMBERS_MAX:
            raise CorruptCompression(f"zstd: more than {_MEMBERS_MAX} empty blocks in one frame")
        if block & 1:
            return position, blocks
    return len(view) + 1, blocks


_Reader: TypeAlias = Callable[[memoryview, int], Iterator[Buffer]]
_READERS: Final[Mapping[Compression, _Reader]] = MappingProxyType(
    {
        Compression.GZIP: _read_gzip,
        Compression.SNAPPY: snappy.read,
        Compression.LZ4: _read_lz4,
        Compression.ZSTD: _read_zstd,
    }
)
