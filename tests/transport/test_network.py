"""What the network says of addresses that refuse connections (rule B13), and of sockets."""

import asyncio
import socket
import ssl

from ottla.transport.network import TcpNetwork


def test_address_refuses_connections_while_nobody_listens() -> None:
    async def scenario() -> None:
        network = TcpNetwork()
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            port = int(bound.getsockname()[1])
            assert await network.refuses("127.0.0.1", port), "it is bound, and nobody listens"
            bound.listen()
            assert not await network.refuses("127.0.0.1", port)
        assert await network.refuses("127.0.0.1", port)

    asyncio.run(scenario())


def test_host_refuses_connections_if_all_its_addresses_do() -> None:
    async def scenario() -> None:
        loop, network = asyncio.get_running_loop(), TcpNetwork()
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen()
            port = int(listening.getsockname()[1])

            async def resolved(host: str, port: int, **options: object) -> object:
                return [
                    (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))
                    for address in ("127.0.0.2", host)
                ]

            loop.getaddrinfo = resolved  # type: ignore[method-assign,assignment]
            assert not await network.refuses("127.0.0.1", port), "one of two listens"
            assert await network.refuses("127.0.0.3", port)

    asyncio.run(scenario())


def test_unknown_host_does_not_refuse_connections() -> None:
    async def scenario() -> None:
        assert not await TcpNetwork().refuses("unknown.invalid", 9092)

    asyncio.run(scenario())


def test_only_plain_sockets_can_send_from_files() -> None:
    """The transport has to encrypt what TLS sends, so that responses are copied (decision 0030)."""
    network, context = TcpNetwork(), ssl.create_default_context()
    with socket.socket() as connected:
        plain = asyncio.Transport({"socket": connected})
        encrypted = asyncio.Transport({"socket": connected, "sslcontext": context})
        simulated = asyncio.Transport()
        watches = [
            network.watch_writable(transport, lambda: None) is not None
            for transport in (plain, encrypted, simulated)
        ]
    assert watches == [True, False, False]
