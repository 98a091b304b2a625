"""The table of handlers."""

from inspect import Parameter, signature
from pathlib import Path

from broker.nodes import broker, run
from ottla.broker.dispatch import HANDLERS


def test_every_handler_is_bound_to_all_that_it_needs(tmp_path: Path) -> None:
    """The type checker does not report a need that a row of the table leaves out."""

    async def scenario() -> None:
        async with broker(tmp_path) as running:
            unbound = {
                api.name: [
                    name
                    for name, parameter in signature(make(running.parts)).parameters.items()
                    if parameter.default is Parameter.empty
                ]
                for api, make in HANDLERS.items()
            }
            assert unbound == {api.name: ["request", "connection"] for api in HANDLERS}

    run(scenario)
