"""Events of the verifiable tools, one JSON object per line.

Invariant: an event has its timestamp, its name, and then its fields.
"""

import sys
import time

import msgspec


def tell(name: str, **facts: object) -> None:
    """Print an event and flush."""
    event = {"timestamp": int(time.time() * 1000), "name": name, **facts}
    sys.stdout.write(msgspec.json.encode(event).decode() + "\n")
    sys.stdout.flush()
