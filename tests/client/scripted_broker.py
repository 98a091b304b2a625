"""A scripted broker: it answers what the test specifies, in the versions that the test allows."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Self

from ottla.client.network.cluster_view import BrokerView
from ottla.client.network.connections import Address
from ottla.ids import BrokerId
from ottla.protocol.apis import API_OF_KEY, API_VERSIONS
from ottla.protocol.conversation import Request, ServerConversation
from ottla.protocol.message import Api, Message
from ottla.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
)

HOST = "127.0.0.1"

Answers = Mapping[type[Message], Callable[[Any], Message | None]]


class ScriptedBroker:
    """A broker with an answer per request class; a request without an answer gets no response.

    `newest` limits an API to a version, or removes it with -1; `features` are the finalized
    features of the cluster. `asked` has the requests, `accepted` counts the connections.
    """

    def __init__(
        self,
        answers: Answers,
        *,
        newest: Mapping[Api, int] | None = None,
        number: int = 1,
        features: Mapping[str, int] | None = None,
    ) -> None:
        self.answers: dict[type[Message], Callable[[Any], Message | None]] = {
            MetadataRequest: self.metadata,
            **answers,
        }
        self.asked: list[Message] = []
        self.accepted = 0
        self.number = number
        self.others: list[ScriptedBroker] = []
        self._newest = newest or {}
        self._features = features or {}
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, HOST, 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop_listening()
        self.drop()

    def stop_listening(self) -> None:
        assert self._server is not None
        self._server.close()

    def drop(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def count(self, kind: type[Message]) -> int:
        return sum(isinstance(one, kind) for one in self.asked)

    @property
    def place(self) -> Address:
        assert self._server is not None
        return Address(HOST, self._server.sockets[0].getsockname()[1])

    @property
    def bootstrap_servers(self) -> str:
        return f"{HOST}:{self.place.port}"

    def view(self) -> BrokerView:
        return BrokerView(BrokerId(self.number), *self.place)

    def metadata(self, _: MetadataRequest) -> MetadataResponse:
        nodes = [
            MetadataResponseBroker(node_id=one.number, host=HOST, port=one.place.port)
            for one in (self, *self.others)
        ]
        return MetadataResponse(
            brokers=nodes, cluster_id="scripted", controller_id=self.number, topics=()
        )

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self._writers.append(writer)
        conversation = ServerConversation()
        try:
            while data := await reader.read(1 << 16):
                for request in conversation.receive(data):
                    answer = self._answer(request)
                    if answer is not None:
                        writer.writelines(conversation.send(request, answer))
        except ConnectionError:
            pass
        finally:
            writer.close()

    def _answer(self, request: Request) -> Message | None:
        if request.api is API_VERSIONS:
            agreed = [
                FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
                for name, level in self._features.items()
            ]
            return ApiVersionsResponse(
                error_code=0, api_keys=[*self._offered()], finalized_features=agreed
            )
        self.asked.append(request.message)
        answer = self.answers.get(type(request.message))
        return None if answer is None else answer(request.message)

    def _offered(self) -> list[ApiVersion]:
        return [
            ApiVersion(
                api_key=key,
                min_version=api.versions.low,
                max_version=self._newest.get(api, api.versions.high),
            )
            for key, api in API_OF_KEY.items()
            if self._newest.get(api, api.versions.high) >= api.versions.low
        ]
