"""What tests of sendfile need from the operating system."""

import os
import re
import sys

import pytest


def _has_cachestat() -> bool:
    found = re.match(r"(\d+)\.(\d+)", os.uname().release)
    if sys.platform != "linux" or found is None:
        return False
    return (int(found[1]), int(found[2])) >= (6, 5)


needs_cachestat = pytest.mark.skipif(
    not _has_cachestat(), reason="the kernel cannot tell which pages are cached (Linux 6.5)"
)
