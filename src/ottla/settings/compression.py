# ruff: noqa: E501 - one line per row
"""The compression levels of producers, topics and brokers."""

from typing import Final

from ottla.settings.config_def import CLUSTER_WIDE, Setting, settings_in
from ottla.settings.config_types import INT
from ottla.settings.validators import between, range_or

# fmt: off
COMPRESSION_GZIP_LEVEL = Setting("compression.gzip.level", INT, -1, range_or(between(1, 9), -1), dynamic=CLUSTER_WIDE,
    doc="Compression level of gzip, from 1 (fastest) to 9 (smallest); -1 means the default of zlib, which is 6.")
COMPRESSION_LZ4_LEVEL = Setting("compression.lz4.level", INT, 9, between(1, 17), dynamic=CLUSTER_WIDE,
    doc="Compression level of lz4, from 1 (fastest) to 17 (smallest). Lower it to save CPU.")
COMPRESSION_ZSTD_LEVEL = Setting("compression.zstd.level", INT, 3, between(-131072, 22), dynamic=CLUSTER_WIDE,
    doc="Compression level of zstd, up to 22 (smallest). Negative levels are faster and compress less.")
# fmt: on

LEVELS: Final = settings_in(globals())
