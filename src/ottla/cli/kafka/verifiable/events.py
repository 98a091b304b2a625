"""Events of the verifiable tools: a line of JSON each.

Invariant: a line has when it happened, what, and then the facts.
"""

import sys
import time

import msgspec


def tell(name: str, **facts: object) -> None:
    """Print an event, at once."""
    event = {"timestamp": int(time.time() * 1000), "name": name, **facts}
    sys.stdout.write(msgspec.json.encode(event).decode() + "\n")
    sys.stdout.flush()
