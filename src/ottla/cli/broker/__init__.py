"""`ottla broker` and `ottla dev`: run a broker, and manage the brokers of a cluster."""

from typing import Final

VERBS: Final = ("list", "drain", "undrain")
"""The commands of `ottla broker` that do not run a broker."""
