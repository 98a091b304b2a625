# ruff: noqa: E501 - a row reads best with its facts on one line.
"""How hard to compress: the levels that producers, topics and brokers share.

Invariant: a level matters only where its codec is the one in use; decompressing never needs one.
"""

from typing import Final

from ottla.settings.config_def import CLUSTER_WIDE, Setting, settings_in
from ottla.settings.config_types import INT
from ottla.settings.validators import between, either

# fmt: off
COMPRESSION_GZIP_LEVEL = Setting("compression.gzip.level", INT, -1, either(between(1, 9), -1), dynamic=CLUSTER_WIDE,
    doc="Effort of gzip, from 1 (fast) to 9 (small); -1 leaves it to the library, which takes 6.")
COMPRESSION_LZ4_LEVEL = Setting("compression.lz4.level", INT, 9, between(1, 17), dynamic=CLUSTER_WIDE,
    doc="Effort of lz4, from 1 (fast) to 17 (small). Lower it when the sender is short of CPU.")
COMPRESSION_ZSTD_LEVEL = Setting("compression.zstd.level", INT, 3, between(-131072, 22), dynamic=CLUSTER_WIDE,
    doc="Effort of zstd, up to 22 (small); below zero it gives up size for speed.")
# fmt: on

LEVELS: Final = settings_in(globals())
