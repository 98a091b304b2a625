"""The five codecs of a record batch, as two functions.

Invariant: `decompress` never returns more than `limit` bytes nor allocates for more, whatever
its input claims; its time is linear in its input and `limit`; and damaged input brings only
CorruptCompression and DecompressionLimitExceeded. What `compress` writes, the Java client,
librdkafka and the Python clients read.

Each call makes its own codec context. A kept one would save 5 µs of the 25 µs that unpacking 16 KB
of zstd takes, and nothing measurable at 1 MB, but it would be state shared between brokers and
unsafe between threads. Codec libraries are imported when first used.
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
    """A codec; the value is the one in bits 0 to 2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def label(self) -> str:
        """The name in Kafka's settings, such as `zstd`."""
        return self.name.lower()

    @classmethod
    def named(cls, label: str) -> Self:
        """The codec of a label; ValueError when there is none."""
        for kind in cls:
            if kind.label == label:
                return kind
        labels = ", ".join(kind.label for kind in cls)
        raise ValueError(f"no compression is called {label!r}; there are {labels}")


# The levels that Kafka's settings allow (KIP-390). Snappy and none have no levels.
_LEVELS: Final[Mapping[Compression, Container[int]]] = MappingProxyType(
    {
        Compression.GZIP: frozenset({-1, *range(1, 10)}),
        Compression.LZ4: range(1, 18),
        Compression.ZSTD: range(-131072, 23),
    }
)


def compress(kind: Compression, data: Buffer, level: int | None = None) -> bytes:
    """Compress `data`; a level of None is the default of Kafka, one out of range a ValueError."""
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

    Raises CorruptCompression for damaged data, also for data that is cut short, empty, or
    followed by anything, and DecompressionLimitExceeded when `limit` bytes do not suffice.
    """
    view = memoryview(data)
    if kind is Compression.NONE:
        if len(view) > limit:
            raise DecompressionLimitExceeded(limit)
        return bytes(data)
    if not view:
        raise CorruptCompression(f"{kind.label}: there is no data")
    pieces: list[Buffer] = []
    produced = 0
    for piece in _READERS[kind](view, limit):
        produced += len(piece)
        if produced > limit:
            raise DecompressionLimitExceeded(limit)
        pieces.append(piece)
    return bytes(pieces[0]) if len(pieces) == 1 else b"".join(pieces)


# Below, a reader yields pieces whose sum may pass `limit` by one byte, which tells that there is
# more than the limit allows; it never makes a longer piece.


class _Decoder(Protocol):
    """What the stdlib's decompressors have in common."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: memoryview, /, max_length: int) -> bytes: ...


# A decoder hands back a copy of what follows its member, and holds twice what a step gives, which
# may be a thousand times the step. Small steps keep both small, so that a crowd of tiny members
# costs time in proportion to their bytes, and a bomb no more memory than the limit. What a step
# gives is copied while no other thread runs, so steps get smaller still where they give much.
_STEP_BYTES: Final = 8 * 1024
_STEP_BYTES_MIN: Final = 256
_PIECE_BYTES: Final = 256 * 1024

_ROOM_BYTES: Final = 256 * 1024  # for the first piece of a frame that is read in pieces

# Java's readers go on after the end of a gzip member or a zstd frame if there is more, so we do
# too. Writers make one; a crowd of them is an attempt to keep us busy.
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
                raise CorruptCompression(f"{name}: the data ends too early")
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


# LZ4. Kafka takes frames of independent blocks only.


class _Lz4Frame(Protocol):
    """The part of `lz4.frame` used here, which comes without types."""

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

# Kafka names its default level 9 and means the fast compressor by it; only the other levels are
# of the high compressor, which is 20 times slower.
_LZ4_LEVEL_DEFAULT: Final = 9
_LZ4_LEVEL_FAST: Final = 0


def _lz4_frame() -> _Lz4Frame:
    import lz4.frame

    return cast("_Lz4Frame", lz4.frame)


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    if level is None or level == _LZ4_LEVEL_DEFAULT:
        level = _LZ4_LEVEL_FAST
    # As Java's writer: blocks of 64 KB, which is the library's default, without the content's
    # size. No content checksum: Java's reader computes another one for several blocks.
    return _lz4_frame().compress(
        data, compression_level=level, block_linked=False, store_size=False
    )


def _read_lz4(view: memoryview, limit: int) -> Iterator[bytes]:
    if len(view) < 7 or bytes(view[:4]) != _LZ4_MAGIC:
        raise CorruptCompression("lz4: the data does not begin with a frame")
    if view[4] & _LZ4_FLAGS_KEPT != _LZ4_FLAGS_TAKEN:
        raise CorruptCompression("lz4: the frame is not of version 1 with independent blocks")
    frame = _lz4_frame()
    context = frame.create_decompression_context()
    position = produced = 0
    ended = False
    try:
        while not ended:
            # The library allocates `max_length` at once. Records shrink to a quarter or so,
            # thus one step is the rule.
            room = min(limit - produced + 1, 4 * len(view) + _LZ4_BLOCK_BYTES)
            piece, consumed, ended = frame.decompress_chunk(
                context, view[position:], max_length=room
            )
            if not piece and not consumed and not ended:
                raise CorruptCompression("lz4: the data ends too early")
            produced += len(piece)
            position += consumed
            yield piece
    except RuntimeError as error:
        raise CorruptCompression(f"lz4: {error}") from None
    # Java's reader stops at the end of the first frame, so a second one would be lost there.
    if position < len(view):
        raise CorruptCompression("lz4: bytes follow the end of the frame")


# zstd, from the stdlib where it has it.

# What zstd itself takes and its highest level uses. The window is allocated at once, but pages
# are touched only as far as there is output.
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
                    raise CorruptCompression("zstd: a frame claims more than it can hold")
                if declared > 0 or (declared < 0 and capacity <= limit - produced):
                    piece = decompressor.decompress(frame, max_output_size=capacity)
                    produced += len(piece)
                    yield piece
                    continue
                # The frame may hold more than is allowed, so it is read in steps.
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


_ZSTD_SKIPPABLE: Final = range(0x184D2A50, 0x184D2A60)  # magic numbers of frames to pass over
_ZSTD_BLOCK_RLE: Final = 1
_ZSTD_BLOCK_BYTES_MAX: Final = 128 * 1024


def _zstd_frames(view: memoryview) -> Iterator[tuple[memoryview, int]]:
    """Cut the data into frames by the lengths of their blocks, each with the most it may hold.

    The library's reader tells neither that a frame was cut short nor that bytes follow it, and
    its other interfaces have to be given as much memory as the frame may need.
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
        raise CorruptCompression("zstd: the data ends too early")


def _zstd_blocks(view: memoryview, position: int) -> tuple[int, int]:
    """Where the last block ends, beyond the data when it was cut, and how many there are."""
    blocks = 0
    empty = 0
    while position + 3 <= len(view):
        block = view[position] | view[position + 1] << 8 | view[position + 2] << 16
        size = 1 if block >> 1 & 3 == _ZSTD_BLOCK_RLE else block >> 3
        position += 3 + size
        blocks += 1
        # A writer that flushes makes an empty block now and then; a crowd is to keep us busy.
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
