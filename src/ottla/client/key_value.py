"""The types of keys and values.

Without type arguments and serializers, keys and values are bytes.
"""

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:  # only the type checker needs a default for the type variables
    from typing_extensions import TypeVar as TypeVarWithDefault

    K = TypeVarWithDefault("K", default=bytes)
    V = TypeVarWithDefault("V", default=bytes)
else:
    K = TypeVar("K")
    V = TypeVar("V")
