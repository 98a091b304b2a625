"""The bytes on the pages of docs/formats/ are the bytes that the code writes."""

import re
from pathlib import Path

from ottla.protocol.conversation import ClientConversation, ServerConversation
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
)

FORMATS = Path(__file__).parents[1] / "docs" / "formats"


def worked_bytes(page: str) -> list[bytes]:
    blocks = re.findall(r"^```\n(.*?)^```", (FORMATS / page).read_text(), re.DOTALL | re.MULTILINE)
    return [bytes.fromhex(block) for block in blocks]


def test_messages() -> None:
    client, server = ClientConversation("tour"), ServerConversation()
    request = MetadataRequest(topics=[MetadataRequestTopic(name="events")])
    answer = MetadataResponse(
        throttle_time_ms=0,
        brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=9092)],
        topics=[],
    )
    old = b"".join(client.send(request, 1)[1])
    new = b"".join(client.send(request, 12)[1])
    (received,) = server.receive(new)
    assert worked_bytes("messages.md") == [old, new, b"".join(server.send(received, answer))]
