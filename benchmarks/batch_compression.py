"""Speed of compressing and decompressing batches, compared with other Python clients.

Invariant: in a case all candidates get the same bytes and, if a codec has levels, the same level.
Ours also limits the decompressed size; the peers do not.

The name is not `compression.py`, because Python 3.14 has a standard package of that name, and the
directory of a script comes first on the module path.
"""

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, cast

import aiokafka.codec
import kafka.codec

from harness import Candidate, Case, run
from ottla.records.compression import Compression, compress, decompress

PAYLOAD_BYTES = 1_000_000
LIMIT_BYTES = 8_000_000

# Two of the codecs use the same library as a peer, so equal speed is the best possible. A tenth is
# noise on a shared machine.
TARGET_RATIO = 0.9


def records() -> bytes:
    """One megabyte of JSON-like records of about 100 bytes."""
    chance = random.Random(20250101)
    cities = ["Lisbon", "Nairobi", "Osaka", "Toronto", "Quito"]
    payload = bytearray()
    number = 0
    while len(payload) < PAYLOAD_BYTES:
        number += 1
        payload += (
            f'{{"id":{number},"user":"{chance.getrandbits(48):012x}",'
            f'"city":"{chance.choice(cities)}","amount":{chance.randrange(100_000) / 100},'
            f'"ts":{1_735_689_600_000 + number * 17 + chance.randrange(17)}}}'
        ).encode()
    return bytes(payload[:PAYLOAD_BYTES])


class Peer(NamedTuple):
    """The two functions of a peer for one codec, at the level of the case."""

    name: str
    pack: Callable[[bytes], object]
    unpack: Callable[[bytes], object]


_kafka_python = cast("Any", kafka.codec)  # has no types

PEERS: dict[Compression, list[Peer]] = {
    Compression.GZIP: [
        # Level 6 is the default of zlib.
        Peer(
            "aiokafka",
            partial(aiokafka.codec.gzip_encode, compresslevel=6),
            aiokafka.codec.gzip_decode,
        ),
        Peer(
            "kafka-python",
            partial(_kafka_python.gzip_encode, compresslevel=6),
            _kafka_python.gzip_decode,
        ),
    ],
    Compression.SNAPPY: [
        Peer("aiokafka", aiokafka.codec.snappy_encode, aiokafka.codec.snappy_decode),
        Peer("kafka-python", _kafka_python.snappy_encode, _kafka_python.snappy_decode),
    ],
    Compression.LZ4: [
        # Level 0 is the fast compressor, the default of Kafka.
        Peer("aiokafka", partial(aiokafka.codec.lz4_encode, level=0), aiokafka.codec.lz4_decode),
        Peer("kafka-python", _kafka_python.lz4_encode, _kafka_python.lz4_decode),
    ],
    Compression.ZSTD: [
        Peer("aiokafka", aiokafka.codec.zstd_encode, aiokafka.codec.zstd_decode),
        Peer("kafka-python", _kafka_python.zstd_encode, _kafka_python.zstd_decode),
    ],
}


def cases() -> Iterator[Case]:
    payload = records()
    for size in (PAYLOAD_BYTES, 16_000):
        for kind, peers in PEERS.items():
            yield from pair(kind, peers, payload[:size])


def pair(kind: Compression, peers: list[Peer], payload: bytes) -> Iterator[Case]:
    packed = compress(kind, payload)
    packing: dict[str, Candidate] = {"ottla": partial(compress, kind, payload)}
    unpacking: dict[str, Candidate] = {"ottla": partial(decompress, kind, packed, LIMIT_BYTES)}
    for peer in peers:
        packing[peer.name] = partial(peer.pack, payload)
        unpacking[peer.name] = partial(peer.unpack, packed)
    size = f"{len(payload) // 1000}K"
    megabytes = len(payload) / 1e6
    yield Case(f"{kind.label} pack {size}", packing, megabytes, TARGET_RATIO)
    yield Case(f"{kind.label} unpack {size}", unpacking, megabytes, TARGET_RATIO)


if __name__ == "__main__":
    run(
        __file__,
        "MB of records packed and unpacked a second",
        cases(),
        "MB",
        ("aiokafka", "kafka-python", "cramjam", "lz4", "zstandard"),
    )
