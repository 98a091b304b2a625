"""The results of `ottla zookeeper ls` and `ottla zookeeper get`."""

import asyncio
import json

from ottla.cli.failures import Failed
from ottla.cli.output import Json
from ottla.cli.result import Result
from ottla.cli.zookeeper.tree import tree
from ottla.coordination.errors import InvalidPath, NoNode


def listed(connect: str, path: str, *, recursive: bool) -> Result:
    """List nodes."""

    async def read() -> list[str]:
        async with tree(connect) as nodes:
            if recursive:
                return (await nodes.descendants(path))[1:]
            return await nodes.children(path)

    try:
        names = asyncio.run(read())
    except (NoNode, InvalidPath) as error:
        raise _missing(path, error) from None
    return Result({"path": path, "children": names}, names)


def got(connect: str, path: str) -> Result:
    """Read a node: its data as text, or as hexadecimal digits if it is not text."""

    async def read() -> tuple[bytes, dict[str, Json]]:
        async with tree(connect) as nodes:
            data, stat = await nodes.data(path), await nodes.stat(path)
            return data, {
                "version": stat.version,
                "created_ms": stat.ctime,
                "changed_ms": stat.mtime,
                "ephemeral_owner": stat.ephemeralOwner or None,
                "children": stat.numChildren,
            }

    try:
        data, metadata = asyncio.run(read())
    except (NoNode, InvalidPath) as error:
        raise _missing(path, error) from None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = data.hex()
    value: Json = text
    if text[:1] in ("{", "["):
        try:
            value = json.loads(text)
        except ValueError:
            value = text
    return Result({"path": path, "data": value, **metadata}, [text])


def _missing(path: str, error: NoNode | InvalidPath) -> Failed:
    if isinstance(error, NoNode):
        return Failed(f"node {path} does not exist", "NO_NODE")
    return Failed(f"{path} is not the path of a node, as /brokers/ids", "INVALID_PATH")
