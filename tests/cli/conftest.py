"""Forks the brokers with which commands are tested.

A new interpreter takes three times as much processor time to start a broker. `test_broker` and
`test_cluster_processes` start brokers as users do.
"""

from collections.abc import Generator

import pytest

from cli.forked import forked_broker
from judges import ottla_broker


@pytest.fixture(scope="module", autouse=True)
def forked_brokers() -> Generator[None]:
    """Before the fixtures of a module, which start brokers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ottla_broker, "new_process", forked_broker)
        yield
