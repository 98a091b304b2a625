"""The hot paths: Produce and Fetch have readers and writers made by hand.

Invariant: what they read and write is what the compiled ones of the same version do, byte for
byte and refusal for refusal. They finish only what is plain, which is nearly every message;
whatever else they meet, truncated and lying bytes included, goes to the compiled one, which
starts anew. So every bound of what a peer may send is kept in one place, and a new tagged field
or a new error needs no change here.

The versions that are not flexible, which are of another shape, are in modules of their own.
`docs/decisions/0004` has the figures.

Records are left where they are, as slices of a memoryview when they are read and as buffers of
their own when they are written.
"""

import struct
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import ProtocolViolation
from ottla.protocol.apis import FETCH, PRODUCE
from ottla.protocol.reader import Reader
from ottla.protocol.writer import Writer

if TYPE_CHECKING:
    from ottla.protocol.message import Message

HOT: Final = (PRODUCE, FETCH)


PLAIN_BYTES: Final = 16 * 1024
"""What is written by hand grows by copying, which is the fastest way for few bytes only: a message
with more than this between its records is left to the compiled writer."""

PARTITIONS_MAX: Final = 126
"""So many of one topic are plain: their number is one byte where versions are flexible."""


class Unplain(Exception):
    """A message has something that is left to the compiled reader or writer."""


# What makes a reader or a writer leave a message alone: that it is not plain, and all that comes of
# reading on as if it were. Whether it is an error the compiled one says.
UNREAD: Final = (Unplain, ProtocolViolation, struct.error, IndexError, UnicodeDecodeError)
UNWRITTEN: Final = (Unplain, struct.error, IndexError, AttributeError, TypeError, ValueError)


def hot_reader(cls: "type[Message]", version: int, compiled: Reader) -> Reader:
    """The reader made by hand before the compiled one, or that alone where there is none."""
    make = _made_by_hand("READERS", cls, version)
    return make(version, compiled) if make else compiled


def hot_writer(cls: "type[Message]", version: int, compiled: Writer) -> Writer:
    """The writer made by hand before the compiled one, or that alone where there is none."""
    make = _made_by_hand("WRITERS", cls, version)
    return make(version, compiled) if make else compiled


def _made_by_hand(
    table: str, cls: "type[Message]", version: int
) -> Callable[[int, Any], Any] | None:  # Any: a reader or a writer
    if cls.API not in HOT:
        return None
    # Imported when needed: the module imports the messages, and they import their base, which
    # imports this package.
    old = "" if version in cls.FLEXIBLE else "old_"
    module = import_module(f"{__name__}.{old}{cls.API.module}")
    made: Mapping[type[Message], Callable[[int, Any], Any]] = getattr(module, table)
    return made.get(cls)
