"""Snappy in record batches.

Java's clients use the framing of the xerial library: a header, then blocks, each with its
compressed length. librdkafka and others send one raw block without a frame. Both are read, and the
frame is written. A block is decompressed only if the size that it declares is possible and within
the limit.
"""

from collections.abc import Iterator
from typing import Final

from ottla.protocol.primitives import Buffer
from ottla.records.errors import CorruptCompression, DecompressionLimitExceeded

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"  # version, compatible
_XERIAL_BLOCK_BYTES: Final = 32 * 1024  # the default of Java's writer

# Three bytes of snappy copy at most 64, so a length above 22 times the input is impossible.
_SNAPPY_RATIO_MAX: Final = 22

# Java's writer puts at least 1 KB into a block, which compresses to 48 bytes at best. Smaller
# blocks are read too, but a large number of them is an attack on the CPU.
_XERIAL_BLOCKS_MAX: Final = 1000
_XERIAL_BLOCK_PACKED_BYTES: Final = 48


def compress(data: Buffer) -> bytes:
    """Compress `data` with the framing of Java's clients."""
    import cramjam

    view = memoryview(data)
    pieces: list[Buffer] = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        raw = view[start : start + _XERIAL_BLOCK_BYTES]
        block = memoryview(cramjam.snappy.compress_raw(raw))
        pieces += (len(block).to_bytes(4, "big"), block)
    return b"".join(pieces)


def read(view: memoryview, limit: int) -> Iterator[Buffer]:
    """Decompress block by block; no block is decompressed that would exceed `limit`."""
    import cramjam

    blocks = _xerial_blocks(view) if bytes(view[:8]) == _XERIAL_MAGIC else (view,)
    produced = 0
    try:
        for block in blocks:
            declared = cramjam.snappy.decompress_raw_len(block)
            if declared > _SNAPPY_RATIO_MAX * len(block):
                raise CorruptCompression("snappy: a block declares more than it can hold")
            produced += declared
            if produced > limit:
                raise DecompressionLimitExceeded(limit)
            yield memoryview(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise CorruptCompression(f"{error}") from None  # the message names the library


def _xerial_blocks(view: memoryview) -> Iterator[memoryview]:
    position = 0
    blocks_left = _XERIAL_BLOCKS_MAX + len(view) // _XERIAL_BLOCK_PACKED_BYTES
    while position < len(view):
        blocks_left -= 1
        if blocks_left < 0:
            raise CorruptCompression("snappy: too many tiny blocks")
        # Java's reader accepts another header between two blocks, as the start of appended data.
        # Its first bytes would be a negative length.
        if bytes(view[position : position + 8]) == _XERIAL_MAGIC:
            # Some writers store the version in the wrong byte order; every positive one is valid.
            if int.from_bytes(view[position + 8 : position + 12], "big", signed=True) < 1:
                raise CorruptCompression("snappy: the frame has an unknown version")
            position += len(_XERIAL_HEADER)
        else:
            size = int.from_bytes(view[position : position + 4], "big", signed=True)
            position += 4
            if size < 1:
                raise CorruptCompression(f"snappy: invalid block length {size}")
            block = view[position : position + size]
            position += size
            if position <= len(view):
                yield block
    if position > len(view):
        raise CorruptCompression("snappy: the data is truncated")
