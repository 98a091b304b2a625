"""The folders in which the job keeps what it makes, under the one that it is given.

Invariant: a folder keeps its name, for the next start looks there.
"""

from typing import Final

AVERAGES: Final = "averages"
CHECKPOINTS: Final = "checkpoints"
