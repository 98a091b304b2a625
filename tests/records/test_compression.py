"""Codecs: interoperability with other libraries, limits, and hostile input."""

import contextlib
import gzip
import subprocess
import sys
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import aiokafka.codec
import cramjam
import kafka.codec
import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cases import each_case
from ottla.errors import OttlaError
from ottla.records.compression import (
    Compression,
    CorruptCompression,
    DecompressionLimitExceeded,
    compress,
    decompress,
)
from sampling import examples

LIMIT = 1_000_000
CODECS = [kind for kind in Compression if kind is not Compression.NONE]

# The levels a test tries: the ends, the default, and the change of method inside lz4.
LEVELS: Mapping[Compression, list[int]] = {
    Compression.NONE: [],
    Compression.GZIP: [-1, *range(1, 10)],
    Compression.SNAPPY: [],
    Compression.LZ4: list(range(1, 18)),
    Compression.ZSTD: [-131072, -1000, -1, 0, *range(1, 23)],
}

SMALL = b"ottla " * 20
RECORDS = b"".join(b'{"id":%d,"user":"u%d","ok":true}' % (n, n * 7919 % 1009) for n in range(9000))

# SMALL as Java's libraries write it: java.util.zip, snappy-java, lz4-java with Kafka's frame
# settings, zstd-jni.
FROM_JAVA: Mapping[Compression, str] = {
    Compression.GZIP: """
        1f 8b 08 00 00 00 00 00 00 ff cb 2f 29 c9 49 54 c8 a7 3b 09 00 5a 5f bd 40 78 00 00 00""",
    Compression.SNAPPY: """
        82 53 4e 41 50 50 59 00 00 00 00 01 00 00 00 01
        00 00 00 0e 78 14 6f 74 74 6c 61 20 fe 06 00 c6 06 00""",
    Compression.LZ4: """
        04 22 4d 18 60 40 82 10 00 00 00 6f 6f 74 74 6c 61 20 06 00 5a 50 74 74 6c 61 20
        00 00 00 00""",
    Compression.ZSTD: "28 b5 2f fd 00 58 6d 00 00 30 6f 74 74 6c 61 20 01 00 2f 69 29 02",
}


class Lz4Writer:
    """`lz4.frame.compress`, which has no types."""

    def __call__(self, data: bytes, **options: object) -> bytes:
        import lz4.frame

        write = cast("Callable[..., bytes]", cast("Any", lz4.frame).compress)
        return write(data, **{"block_linked": False, "store_size": False, **options})


lz4_frame = Lz4Writer()


def zstd_stream(data: bytes, *, checksum: bool = False) -> bytes:
    """A frame without its content size, as Java writes it."""
    writer = zstandard.ZstdCompressor(write_checksum=checksum).compressobj()
    return writer.compress(data) + writer.flush()


def snappy_raw(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


# Names


def test_codecs_have_kafkas_numbers_and_labels() -> None:
    assert [(int(kind), kind.label) for kind in Compression] == [
        (0, "none"),
        (1, "gzip"),
        (2, "snappy"),
        (3, "lz4"),
        (4, "zstd"),
    ]
    assert all(Compression.named(kind.label) is kind for kind in Compression)


@each_case("label", ["", "ZSTD", "producer", "brotli"])
def test_unknown_label_error_lists_the_labels(label: str) -> None:
    with pytest.raises(ValueError, match="none, gzip, snappy, lz4, zstd"):
        Compression.named(label)


# Round trips


def repeat(part: bytes, times: int) -> bytes:
    return part * times


payloads = st.binary(max_size=300) | st.builds(
    repeat, st.binary(min_size=1, max_size=50), st.integers(1, 4000)
)


@each_case(
    ("kind", "level"),
    [(kind, level) for kind in Compression for level in [None, *LEVELS[kind]]],
)
def test_every_codec_and_level_round_trips(kind: Compression, level: int | None) -> None:
    @given(payloads)
    @example(b"")
    @example(RECORDS)
    @settings(max_examples=examples(6, usual=12), deadline=None)
    def check(payload: bytes) -> None:
        packed = compress(kind, payload, level)
        if packed:
            assert decompress(kind, packed, len(payload)) == payload

    check()


@each_case("kind", CODECS)
@each_case("size", [1, 32767, 32768, 32769, 65535, 65536, 65537, 131073, 300_000])
def test_round_trip_around_block_sizes(kind: Compression, size: int) -> None:
    payload = (RECORDS * 2)[:size]
    assert decompress(kind, compress(kind, payload), size) == payload


@each_case("kind", Compression)
def test_codecs_accept_any_buffer_unchanged(kind: Compression) -> None:
    packed = compress(kind, RECORDS)
    original = bytearray(b"before" + RECORDS + b"after")
    inside = memoryview(original)[6:-5]
    assert compress(kind, bytearray(RECORDS)) == packed
    assert compress(kind, inside) == packed
    assert original == b"before" + RECORDS + b"after"

    framed = bytearray(b"before" + packed + b"after")
    for source in (packed, bytearray(packed), memoryview(framed)[6:-5]):
        unpacked = decompress(kind, source, LIMIT)
        assert type(unpacked) is bytes
        assert unpacked == RECORDS
    assert framed == b"before" + packed + b"after"


@each_case("kind", CODECS)
def test_codecs_reduce_the_size(kind: Compression) -> None:
    assert len(compress(kind, RECORDS)) < len(RECORDS) / 2


@each_case(
    ("kind", "level"),
    [
        (Compression.NONE, 1),
        (Compression.GZIP, -2),
        (Compression.GZIP, 0),
        (Compression.GZIP, 10),
        (Compression.SNAPPY, 1),
        (Compression.LZ4, 0),
        (Compression.LZ4, 18),
        (Compression.ZSTD, -131073),
        (Compression.ZSTD, 23),
    ],
)
def test_level_that_kafka_rejects_is_rejected(kind: Compression, level: int) -> None:
    with pytest.raises(ValueError, match=f"{kind.label} has no compression level {level}"):
        compress(kind, SMALL, level)


def test_default_lz4_level_is_the_fast_compressor() -> None:
    assert compress(Compression.LZ4, RECORDS) == lz4_frame(RECORDS, compression_level=0)
    assert compress(Compression.LZ4, RECORDS, 9) == compress(Compression.LZ4, RECORDS)
    assert len(compress(Compression.LZ4, RECORDS, 12)) < len(compress(Compression.LZ4, RECORDS))


# The peers


class Peer(NamedTuple):
    kind: Compression
    write: Callable[[bytes], bytes]
    read: Callable[[bytes], bytes]


_kafka_python = cast("Any", kafka.codec)  # without types

PEERS: Mapping[str, Peer] = {
    "gzip-stdlib": Peer(Compression.GZIP, gzip.compress, gzip.decompress),
    "gzip-aiokafka": Peer(Compression.GZIP, aiokafka.codec.gzip_encode, aiokafka.codec.gzip_decode),
    "gzip-kafka-python": Peer(
        Compression.GZIP, _kafka_python.gzip_encode, _kafka_python.gzip_decode
    ),
    "snappy-aiokafka": Peer(
        Compression.SNAPPY, aiokafka.codec.snappy_encode, aiokafka.codec.snappy_decode
    ),
    "snappy-kafka-python": Peer(
        Compression.SNAPPY, _kafka_python.snappy_encode, _kafka_python.snappy_decode
    ),
    "lz4-aiokafka": Peer(Compression.LZ4, aiokafka.codec.lz4_encode, aiokafka.codec.lz4_decode),
    "lz4-kafka-python": Peer(Compression.LZ4, _kafka_python.lz4_encode, _kafka_python.lz4_decode),
    "zstd-aiokafka": Peer(Compression.ZSTD, aiokafka.codec.zstd_encode, aiokafka.codec.zstd_decode),
    "zstd-kafka-python": Peer(
        Compression.ZSTD, _kafka_python.zstd_encode, _kafka_python.zstd_decode
    ),
}


@each_case("peer", PEERS.values(), ids=list(PEERS))
@given(payloads.filter(len))
@example(RECORDS)
@settings(max_examples=examples(15, usual=30), deadline=None)
def test_codecs_interoperate_with_other_libraries(peer: Peer, payload: bytes) -> None:
    assert bytes(peer.read(compress(peer.kind, payload))) == payload
    assert decompress(peer.kind, bytes(peer.write(payload)), len(payload)) == payload


@each_case("kind", CODECS)
def test_output_of_java_is_decompressed(kind: Compression) -> None:
    assert decompress(kind, bytes.fromhex(FROM_JAVA[kind]), len(SMALL)) == SMALL


def test_snappy_uses_the_frame_of_java() -> None:
    assert compress(Compression.SNAPPY, SMALL)[:16].hex(" ") == (
        "82 53 4e 41 50 50 59 00 00 00 00 01 00 00 00 01"
    )
    assert compress(Compression.SNAPPY, b"") == compress(Compression.SNAPPY, SMALL)[:16]


@each_case("payload", [b"", b"x", SMALL, RECORDS])
def test_raw_snappy_is_decompressed(payload: bytes) -> None:
    assert decompress(Compression.SNAPPY, snappy_raw(payload), len(payload)) == payload


def test_lz4_uses_the_header_of_java() -> None:
    assert compress(Compression.LZ4, RECORDS)[:7].hex(" ") == "04 22 4d 18 60 40 82"


@each_case(
    "options",
    [
        {"store_size": True},
        {"content_checksum": True},
        {"block_checksum": True},
        {"block_size": 5},
        {"block_size": 7, "content_checksum": True, "block_checksum": True, "store_size": True},
    ],
)
def test_lz4_options_are_accepted(options: dict[str, object]) -> None:
    assert decompress(Compression.LZ4, lz4_frame(RECORDS, **options), len(RECORDS)) == RECORDS


@each_case("checksum", [False, True])
@each_case("payload", [SMALL, RECORDS])
def test_zstd_frame_without_size_is_decompressed(payload: bytes, checksum: bool) -> None:
    frame = zstd_stream(payload, checksum=checksum)
    assert zstandard.frame_content_size(frame) == -1
    assert decompress(Compression.ZSTD, frame, len(payload)) == payload


def test_zstd_with_the_largest_window_is_decompressed() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27)
    writer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    frame = writer.compress(SMALL) + writer.flush()
    assert zstandard.get_frame_parameters(frame).window_size == 1 << 27
    assert decompress(Compression.ZSTD, frame, LIMIT) == SMALL


# Several members, and trailing bytes


def test_several_members_are_read_as_in_java() -> None:
    parts = [b"one", b"", RECORDS, SMALL]
    whole = b"".join(parts)
    zipped = b"".join(map(gzip.compress, parts))
    assert decompress(Compression.GZIP, zipped, len(whole)) == whole
    framed = b"".join(compress(Compression.SNAPPY, part) for part in parts)
    assert decompress(Compression.SNAPPY, framed, len(whole)) == whole
    frames = b"".join([zstd_stream(parts[0]), *(compress(Compression.ZSTD, p) for p in parts[1:])])
    assert decompress(Compression.ZSTD, frames, len(whole)) == whole


def test_limit_covers_the_sum_of_members() -> None:
    for kind in (Compression.GZIP, Compression.SNAPPY, Compression.ZSTD):
        packed = compress(kind, SMALL) * 3
        assert decompress(kind, packed, 360) == SMALL * 3
        with pytest.raises(DecompressionLimitExceeded):
            decompress(kind, packed, 359)


def test_skippable_zstd_frames_are_skipped() -> None:
    frame = compress(Compression.ZSTD, SMALL)
    skipped = b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc"
    assert decompress(Compression.ZSTD, skipped + frame + skipped, LIMIT) == SMALL
    with pytest.raises(CorruptCompression, match="truncated"):
        decompress(Compression.ZSTD, frame + skipped[:-1], LIMIT)


def test_second_lz4_frame_is_rejected() -> None:
    with pytest.raises(CorruptCompression, match="bytes follow"):
        decompress(Compression.LZ4, compress(Compression.LZ4, SMALL) * 2, LIMIT)


def test_linked_lz4_blocks_are_rejected() -> None:
    with pytest.raises(CorruptCompression, match="independent"):
        decompress(Compression.LZ4, lz4_frame(RECORDS, block_linked=True), LIMIT)


@each_case("kind", CODECS)
@each_case("garbage", [b"\x00", b"x", b"\x00" * 100, b"garbage" * 100])
def test_trailing_bytes_are_rejected(kind: Compression, garbage: bytes) -> None:
    with pytest.raises(CorruptCompression):
        decompress(kind, compress(kind, RECORDS) + garbage, LIMIT)


def test_trailing_bytes_after_raw_snappy_are_rejected() -> None:
    with pytest.raises(CorruptCompression):
        decompress(Compression.SNAPPY, snappy_raw(SMALL) + b"\x00", LIMIT)


@each_case("kind", CODECS)
def test_empty_input_is_rejected(kind: Compression) -> None:
    with pytest.raises(CorruptCompression, match="no data"):
        decompress(kind, b"", LIMIT)
    assert decompress(kind, compress(kind, b""), 0) == b""


def test_codec_none_copies_the_data() -> None:
    assert decompress(Compression.NONE, b"", 0) == b""
    assert decompress(Compression.NONE, SMALL, len(SMALL)) is SMALL
    with pytest.raises(DecompressionLimitExceeded):
        decompress(Compression.NONE, SMALL, len(SMALL) - 1)


# The limit


FORMS: Mapping[str, tuple[Compression, Callable[[bytes], bytes]]] = {
    "gzip": (Compression.GZIP, gzip.compress),
    "snappy": (Compression.SNAPPY, lambda data: compress(Compression.SNAPPY, data)),
    "snappy-raw": (Compression.SNAPPY, snappy_raw),
    "lz4": (Compression.LZ4, lz4_frame),
    "lz4-size": (Compression.LZ4, lambda data: lz4_frame(data, store_size=True)),
    "lz4-checksum": (Compression.LZ4, lambda data: lz4_frame(data, content_checksum=True)),
    "zstd": (Compression.ZSTD, lambda data: compress(Compression.ZSTD, data)),
    "zstd-stream": (Compression.ZSTD, zstd_stream),
    "zstd-checksum": (Compression.ZSTD, lambda data: zstd_stream(data, checksum=True)),
}
CHECKED = {"gzip", "lz4-checksum", "zstd-checksum"}  # a checksum covers the content

every_form = pytest.mark.parametrize("form", FORMS)


@every_form
@each_case("payload", [b"x", SMALL, RECORDS, bytes(1_000_000)])
def test_decompression_limit_is_exact(form: str, payload: bytes) -> None:
    kind, write = FORMS[form]
    packed = write(payload)
    assert decompress(kind, packed, len(payload)) == payload
    for limit in {len(payload) - 1, len(payload) // 2, 0}:
        with pytest.raises(DecompressionLimitExceeded, match=f"more than {limit} bytes") as caught:
            decompress(kind, packed, limit)
        assert caught.value.limit == limit


# A gigabyte of zeros, made by repeating one compressed part. The end is never reached, so the
# checksums need not be valid.

MEGABYTE = 1 << 20
GIGABYTE = 1 << 30


def gzip_bomb() -> bytes:
    deflate = zlib.compressobj(9, zlib.DEFLATED, 31)
    head = deflate.compress(b"") + deflate.flush(zlib.Z_FULL_FLUSH)
    part = deflate.compress(bytes(MEGABYTE)) + deflate.flush(zlib.Z_FULL_FLUSH)
    return head + part * 1024


def snappy_bomb() -> bytes:
    framed = compress(Compression.SNAPPY, bytes(32 * 1024))
    return framed[:16] + framed[16:] * (GIGABYTE // (32 * 1024))


def lz4_bomb(*, store_size: bool = False) -> bytes:
    packed = lz4_frame(bytes(4 * MEGABYTE), block_size=7, store_size=store_size)
    head = 15 if store_size else 7
    return packed[:head] + packed[head:-4] * 256 + packed[-4:]


def zstd_bomb(head: str = "00 38") -> bytes:
    """Blocks that encode 128 KiB of zeros in four bytes, after a window of 128 KiB."""
    run = (128 * 1024 << 3 | 1 << 1).to_bytes(3, "little") + b"\x00"
    last = b"\x01\x00\x00"
    return bytes.fromhex("28 b5 2f fd" + head) + run * (GIGABYTE // (128 * 1024)) + last


BOMBS: Mapping[str, tuple[Compression, Callable[[], bytes]]] = {
    "gzip": (Compression.GZIP, gzip_bomb),
    "snappy": (Compression.SNAPPY, snappy_bomb),
    # 2 GiB declared by five bytes, and by enough bytes to be plausible.
    "snappy-claim": (Compression.SNAPPY, lambda: b"\x80\x80\x80\x80\x08\x00"),
    "snappy-claim-long": (
        Compression.SNAPPY,
        lambda: b"\x80\x80\x80\x80\x04" + b"\xfe\x01\x00" * (GIGABYTE // 64),
    ),
    "lz4": (Compression.LZ4, lz4_bomb),
    "lz4-size": (Compression.LZ4, lambda: lz4_bomb(store_size=True)),
    "zstd": (Compression.ZSTD, zstd_bomb),
    # A window of 128 MiB, the largest that is accepted.
    "zstd-window": (Compression.ZSTD, lambda: zstd_bomb("00 88")),
    # A declared size of 8 EiB.
    "zstd-claim": (Compression.ZSTD, lambda: zstd_bomb("c0 88 00 00 00 00 00 00 00 7f")),
}

# The child reads its peak memory (VmHWM) before and after.
MEASURE = """
import sys
from pathlib import Path
from ottla.records.compression import Compression, compress, decompress

def held_kib():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

kind = Compression.named(sys.argv[1])
bomb = Path(sys.argv[2]).read_bytes()
decompress(kind, compress(kind, bytes(1 << 20)), 1 << 20)
before = held_kib()
try:
    decompress(kind, bomb, 1 << 20)
    outcome = "passed"
except Exception as error:
    outcome = type(error).__name__
print(outcome, held_kib() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
@each_case("name", BOMBS)
def test_decompression_bomb_takes_little_memory(name: str, tmp_path: Path) -> None:
    kind, make = BOMBS[name]
    path = tmp_path / "bomb"
    path.write_bytes(make())
    child = subprocess.run(
        [sys.executable, "-c", MEASURE, kind.label, str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    outcome, grown_kib = child.stdout.split()
    refusal = CorruptCompression if name == "snappy-claim" else DecompressionLimitExceeded
    assert outcome == refusal.__name__
    assert int(grown_kib) < 8 * 1024


def test_too_large_zstd_window_is_rejected() -> None:
    with pytest.raises(CorruptCompression):
        decompress(Compression.ZSTD, zstd_bomb("00 89"), LIMIT)


def test_zstd_frame_with_a_false_size_is_rejected() -> None:
    one_byte = b"\x0b\x00\x00a"
    claim = bytes.fromhex("28 b5 2f fd a0") + (500_000).to_bytes(4, "little") + one_byte
    with pytest.raises(CorruptCompression):
        decompress(Compression.ZSTD, claim, LIMIT)


def test_many_members_are_rejected() -> None:
    assert decompress(Compression.GZIP, gzip.compress(b"") * 1000, 0) == b""
    with pytest.raises(CorruptCompression, match="more than 1000"):
        decompress(Compression.GZIP, gzip.compress(b"") * 100_000, 0)
    empty = zstd_stream(b"")
    assert decompress(Compression.ZSTD, empty * 1000, 0) == b""
    with pytest.raises(CorruptCompression, match="more than 1000"):
        decompress(Compression.ZSTD, empty * 100_000, 0)
    with pytest.raises(CorruptCompression, match="more than 1000"):
        decompress(Compression.ZSTD, b"\x50\x2a\x4d\x18\x00\x00\x00\x00" * 100_000, 0)


@each_case("size", [0, -1, -(2**31), 2**31 - 1])
def test_snappy_block_with_a_false_size_is_rejected(size: int) -> None:
    header = compress(Compression.SNAPPY, b"")
    flood = header + size.to_bytes(4, "big", signed=True) * 100_000
    with pytest.raises(CorruptCompression):
        decompress(Compression.SNAPPY, flood, LIMIT)


def test_number_of_tiny_snappy_blocks_is_limited() -> None:
    header = compress(Compression.SNAPPY, b"")
    empty = b"\x00\x00\x00\x01\x00"
    assert decompress(Compression.SNAPPY, header + empty * 900, 0) == b""
    with pytest.raises(CorruptCompression, match="tiny blocks"):
        decompress(Compression.SNAPPY, header + empty * 100_000, 0)
    with pytest.raises(CorruptCompression, match="tiny blocks"):
        decompress(Compression.SNAPPY, header * 100_000, 0)

    lines = [bytes([n % 256]) + RECORDS[n : n + 100] for n in range(5000)]
    block_per_record = header + b"".join(
        len(block).to_bytes(4, "big") + block for block in map(snappy_raw, lines)
    )
    assert decompress(Compression.SNAPPY, block_per_record, LIMIT) == b"".join(lines)


def test_snappy_frame_version_is_checked() -> None:
    framed = compress(Compression.SNAPPY, SMALL)
    reversed_order = framed[:8] + b"\x01\x00\x00\x00\x01\x00\x00\x00" + framed[16:]
    assert decompress(Compression.SNAPPY, reversed_order, LIMIT) == SMALL
    for version in (0, -1):
        other = framed[:8] + version.to_bytes(4, "big", signed=True) + framed[12:]
        with pytest.raises(CorruptCompression, match="version"):
            decompress(Compression.SNAPPY, other, LIMIT)


# Damage


DAMAGED = SMALL + bytes(range(256)) + b"".join(b"%d," % n for n in range(300))


@every_form
def test_truncated_data_is_rejected(form: str) -> None:
    kind, write = FORMS[form]
    packed = write(DAMAGED)
    for end in range(len(packed)):
        if form == "snappy" and end == 16:
            continue  # the frame has no end mark: a header without content is an empty payload
        with pytest.raises(CorruptCompression):
            decompress(kind, packed[:end], LIMIT)


def test_snappy_truncated_between_blocks_is_read() -> None:
    packed = compress(Compression.SNAPPY, RECORDS)
    first_end = 20 + int.from_bytes(packed[16:20], "big")
    assert decompress(Compression.SNAPPY, packed[:first_end], LIMIT) == RECORDS[: 32 * 1024]


@every_form
def test_changed_byte_raises_only_declared_errors(form: str) -> None:
    kind, write = FORMS[form]
    packed = write(DAMAGED)
    for position in range(len(packed)):
        for change in (0x01, 0x80, 0xFF, 0x10):
            damaged = bytearray(packed)
            damaged[position] ^= change
            try:
                unpacked = decompress(kind, damaged, LIMIT)
            except (CorruptCompression, DecompressionLimitExceeded):
                continue
            assert len(unpacked) <= LIMIT
            if form in CHECKED:
                assert unpacked == DAMAGED


STARTS: Mapping[Compression, list[bytes]] = {
    Compression.GZIP: [b"", b"\x1f\x8b\x08\x00", gzip.compress(SMALL)],
    Compression.SNAPPY: [
        b"",
        compress(Compression.SNAPPY, b""),
        compress(Compression.SNAPPY, SMALL),
    ],
    Compression.LZ4: [b"", compress(Compression.LZ4, b"")[:7], lz4_frame(SMALL)[:-4]],
    Compression.ZSTD: [b"", b"\x28\xb5\x2f\xfd", zstd_stream(SMALL)[:-3], zstd_stream(SMALL)],
}


@each_case("kind", CODECS)
@given(st.data())
@settings(max_examples=examples(150, usual=500), deadline=None)
def test_arbitrary_bytes_raise_only_declared_errors(kind: Compression, data: st.DataObject) -> None:
    start = data.draw(st.sampled_from(STARTS[kind]))
    rest = data.draw(st.binary(max_size=100))
    limit = data.draw(st.integers(0, 5000))
    with contextlib.suppress(CorruptCompression, DecompressionLimitExceeded):
        assert len(decompress(kind, start + rest, limit)) <= limit


def test_codec_errors_are_ottla_errors() -> None:
    assert issubclass(CorruptCompression, OttlaError)
    assert issubclass(DecompressionLimitExceeded, OttlaError)


# Import time


def test_codec_libraries_are_imported_on_first_use() -> None:
    script = """
import sys
import ottla.records.compression
print(*{"cramjam", "lz4", "zstandard", "gzip", "compression"} & set(sys.modules))
"""
    child = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert child.stdout.strip() == ""
