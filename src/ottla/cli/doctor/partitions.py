"""Facts about the partitions of a cluster: which of them are much larger than the others.

Invariant: takes a limited time, whatever the number of topics; what the cluster does not describe
is left out, because another check says why.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from ottla.cli.doctor.facts import SkewFacts
from ottla.cli.topic.description import DescribingAdmin, found_topics
from ottla.cli.topic.hot_keys import found_hot_keys, keys_shown
from ottla.errors import OttlaError

PATIENCE_S: Final = 10.0


async def skewed(settings: Mapping[str, str], reading: Mapping[str, str]) -> Sequence[SkewFacts]:
    """Return the partitions above twice the mean size of their topics.

    The settings are those of an admin client and of a consumer.
    """
    try:
        async with asyncio.timeout(PATIENCE_S), DescribingAdmin(settings) as admin:
            topics, _, _ = await found_topics(admin, (), 0, partial(found_hot_keys, reading))
    except (OttlaError, TimeoutError):
        return ()
    return [
        SkewFacts(
            f"{one.topic.name}-{index}",
            factors["size"],
            keys_shown(one.hot_keys.get(index, ())),
        )
        for one in topics
        for index, factors in sorted(one.skews.items())
    ]
