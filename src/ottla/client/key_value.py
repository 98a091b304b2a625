"""The types of keys and values.

Invariant: who names no types, and gives no serializers, has bytes.
"""

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:  # the type checker brings it; at run time nobody needs a default
    from typing_extensions import TypeVar as TypeVarWithDefault

    K = TypeVarWithDefault("K", default=bytes)
    V = TypeVarWithDefault("V", default=bytes)
else:
    K = TypeVar("K")
    V = TypeVar("V")
