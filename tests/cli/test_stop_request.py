"""Reading until a signal requests a stop."""

import fcntl
import os
import resource
import signal
from collections.abc import Generator

import pytest

from ottla.cli.stop_request import StopRequest

FROM = 1024
"""`select.select` does not accept descriptors from here on."""


@pytest.fixture
def high() -> Generator[int]:
    """Open a file with a large descriptor."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < FROM + 100:
        pytest.skip("so many files are not allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, FROM + 100), hard))
    try:
        with open(os.devnull, "rb") as file:
            found = fcntl.fcntl(file, fcntl.F_DUPFD, FROM)
        yield found
        os.close(found)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_file_with_a_large_descriptor_is_read(high: int) -> None:
    assert high >= FROM
    assert StopRequest().read(high, 10) == b""


@pytest.fixture
def interrupts() -> Generator[None]:
    """Restore the handling of Ctrl-C, which is ignored after a signal."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts")
def test_nothing_is_read_after_a_signal() -> None:
    out, into = os.pipe()
    os.write(into, b"unread")
    with StopRequest() as stop:
        assert stop.read(out, 2) == b"un"
        signal.raise_signal(signal.SIGTERM)
        assert stop.read(out, 10) == b""
    assert stop.number == signal.SIGTERM
    os.close(out)
    os.close(into)
