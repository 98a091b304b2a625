"""`ottla api-versions`: the API versions of brokers and of this client.

Modules are imported on use, so that other commands start fast.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.declaration import asks
from ottla.cli.escapes import escaped
from ottla.cli.failures import Failed, failure_of
from ottla.cli.result import Result, Table
from ottla.cli.session import Session

if TYPE_CHECKING:
    from ottla.cli.cluster.served_apis import ServedApi
    from ottla.cli.output import Json
    from ottla.protocol.schema import Versions


@asks
async def api_versions(
    session: Session,
    *,
    broker: Annotated[
        int | None,
        typer.Option(
            "--broker", metavar="ID", min=0, help="Show only this broker.", show_default=False
        ),
    ] = None,
    everything: Annotated[
        bool,
        typer.Option(
            "--all", help="Include APIs that Ottla's client supports and the broker does not."
        ),
    ] = False,
) -> Result:
    """Show which versions of each API the brokers support, and which one Ottla's client uses."""
    from ottla.cli.cluster.admin import ClusterAdmin
    from ottla.cli.cluster.served_apis import compared

    async with await session.opened(ClusterAdmin) as admin:
        brokers = (await admin.describe_cluster()).brokers
        if broker is not None:
            brokers = tuple(one for one in brokers if one.id == broker)
            if not brokers:
                raise Failed(f"broker {broker} does not exist", "BROKER_NOT_AVAILABLE")
        told = await admin.api_versions(one.id for one in brokers)
    objects: list[Json] = []
    shown: list[Table | str] = []
    for one in brokers:
        if one.id not in told.succeeded:
            continue
        found = [api for api in compared(told[one.id]) if everything or api.theirs is not None]
        objects.append(
            {
                "id": one.id,
                "host": one.host,
                "port": one.port,
                "apis": [_object(api) for api in found],
            }
        )
        shown += [*([""] if shown else []), f"broker {one.id} at {escaped(one.host)}:{one.port}"]
        rows = [
            (api.key, api.name, _text(api.theirs), _text(api.ours), api.usable, api.verdict)
            for api in found
        ]
        shown.append(Table(("KEY", "API", "SERVED", "OURS", "USED", "VERDICT"), rows))
    return Result(
        {"brokers": objects},
        shown,
        [failure_of(error, f"broker {number}") for number, error in told.failed.items()],
    )


def _object(api: "ServedApi") -> "Json":
    return {
        "key": api.key,
        "name": api.name,
        "served": _range(api.theirs),
        "ours": _range(api.ours),
        "usable": api.usable,
        "verdict": api.verdict,
    }


def _range(versions: "Versions | None") -> "Json":
    return None if versions is None else {"min": versions.low, "max": versions.high}


def _text(versions: "Versions | None") -> str | None:
    return None if versions is None else str(versions)
