"""Corrupt streams: frames up to the first invalid length, however the stream is split."""

from random import Random
from struct import pack, unpack_from
from typing import Final

from cases import each_case
from fuzz_mutants import bounded_memory, explained, mutant, scaled, seeded
from ottla.errors import ProtocolViolation
from ottla.protocol.apis import API_OF_KEY
from ottla.protocol.conversation import ClientConversation, ServerConversation
from ottla.protocol.frames import KEPT_BYTES_MAX, Framer
from protocol_values import example

FRAME_BYTES_MAX: Final = 3 * KEPT_BYTES_MAX


def frames_of(stream: bytes) -> tuple[list[bytes], bool]:
    """Return the frames of a stream up to the first invalid length, and whether there is one."""
    frames: list[bytes] = []
    at = 0
    while len(stream) - at >= 4:
        (length,) = unpack_from(">i", stream, at)
        if not 0 <= length <= FRAME_BYTES_MAX:
            return frames, True
        if len(stream) - at - 4 < length:
            break
        frames.append(stream[at + 4 : at + 4 + length])
        at += 4 + length
    return frames, False


def feed(random: Random, stream: bytes) -> tuple[list[bytes], bool]:
    framer = Framer(FRAME_BYTES_MAX)
    frames: list[bytes] = []
    at = 0
    while at < len(stream):
        count = random.choice((1, 3, 4, 5, 50, 1_000, 100_000))
        try:
            if random.randrange(2):
                frames += map(bytes, framer.receive(stream[at : at + count]))
            else:
                room = framer.buffer()
                count = min(count, len(room), len(stream) - at)
                room[:count] = stream[at : at + count]
                frames += map(bytes, framer.filled(count))
        except ProtocolViolation:
            return frames, True
        at += count
    return frames, framer.violation is not None


def streams(random: Random) -> list[bytes]:
    sizes = (0, 1, 4, 30, 30, 200)
    made = [
        b"".join(pack(">i", n) + random.randbytes(n) for n in random.choices(sizes, k=4))
        for _ in range(20)
    ]
    large = pack(">i", KEPT_BYTES_MAX + 9) + bytes(KEPT_BYTES_MAX + 9)
    return [*made, large + made[0], pack(">i", FRAME_BYTES_MAX), pack(">i", FRAME_BYTES_MAX + 1)]


@each_case("shard", range(2))
def test_corrupt_streams(shard: int) -> None:
    random = seeded("frames", shard)
    corpus = streams(random)
    inputs = scaled("frames", 2)
    done = refused = 0
    with bounded_memory():
        while done < inputs:
            stream = mutant(random, corpus)
            with explained("frames", shard, done, stream=stream.hex()):
                frames, violation = feed(random, stream)
                expected, bad = frames_of(stream)
                assert violation is bad
                assert frames == expected
            refused += violation
            done += 1
    assert done >= inputs
    assert inputs / 100 < refused < inputs


@each_case("side", ["server", "client"])
def test_corrupt_conversations(side: str) -> None:
    random = seeded("conversations", side)
    inputs = scaled("conversations", 2)
    cases = [(api, version) for api in API_OF_KEY.values() for version in api.versions]
    requests: list[bytes] = []
    responses: dict[tuple[int, int], bytes] = {}
    for api, version in cases:
        client, server = ClientConversation("fuzz"), ServerConversation()
        raw = b"".join(client.send(example(api.request, version), version)[1])
        (request,) = server.receive(raw)
        if len(raw) < 4_000:
            requests.append(raw)
        answer = b"".join(server.send(request, example(api.response, version)))
        if len(answer) < 4_000:
            responses[api.key, version] = answer
    answered = [case for case in cases if (case[0].key, case[1]) in responses]
    accepted = 0
    with bounded_memory():
        for number in range(inputs):
            if side == "server":
                raw = mutant(random, requests)
                with explained("conversations", side, number, raw=raw.hex()):
                    accepted += _server_takes(raw)
            else:
                api, version = random.choice(answered)
                raw = mutant(random, [responses[api.key, version]])
                client = ClientConversation("fuzz")
                client.send(example(api.request, version), version)
                with explained("conversations", side, number, api=api, version=version, raw=raw):
                    accepted += _client_takes(client, raw)
    assert inputs / 200 < accepted < inputs


def _server_takes(raw: bytes) -> bool:
    server = ServerConversation(frame_bytes_max=FRAME_BYTES_MAX, objects_max=100_000)
    try:
        requests = server.receive(raw)
    except ProtocolViolation:
        return False
    assert server.unanswered == len(requests)
    return bool(requests)


def _client_takes(client: ClientConversation, raw: bytes) -> bool:
    client.framer.frame_bytes_max = FRAME_BYTES_MAX
    try:
        return bool(client.receive(raw))
    except ProtocolViolation:
        return False
