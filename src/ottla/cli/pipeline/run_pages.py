"""The HTTP pages of a running pipeline: the live page, metrics for Prometheus, and health.

Invariant: the pages only read the last progress, which the run replaces as a whole. They never wait
for Spark, and a slow reader never delays the pipeline: pages are served in a thread of their own.
"""

import re
from http import HTTPStatus
from typing import Final, NamedTuple, Self

from ottla import metrics
from ottla.cli.failures import Failed, Misused
from ottla.cli.pipeline.live_page import CONTENT_TYPE, live_page
from ottla.client.sync.portal import Portal
from ottla.pipeline.progress import PipelineProgress
from ottla.pipeline.run_metrics import metric_families, unhealthy_queries
from ottla.pipeline.spec.model import Pipeline
from ottla.transport.http_pages import Page, Pages, PageServer
from ottla.transport.network import TcpNetwork

LOOPBACK: Final = "127.0.0.1"
OFF: Final = "off"
METRICS_PATH: Final = "/metrics"
HEALTH_PATH: Final = "/healthz"

_ADDRESS: Final = re.compile(r"(?:(\[[0-9A-Fa-f:.]+\]|[^\s:\[\]]+):)?([0-9]{1,5})")
_OPEN_S: Final = 10.0


class Address(NamedTuple):
    """Where pages are served."""

    host: str
    port: int
    """0 lets the operating system choose."""


def address_of(text: str) -> Address | None:
    """Parse PORT, HOST:PORT or `off`, which is None; raises Misused."""
    if text == OFF:
        return None
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found[2]) > 65_535:
        raise Misused(f"--http: {text!r} is not PORT, HOST:PORT or {OFF}")
    return Address((found[1] or LOOPBACK).strip("[]"), int(found[2]))


class RunPages:
    """Serves the pages of a pipeline during the `with` block; `url` has their address."""

    def __init__(self, pipeline: Pipeline, address: Address | None) -> None:
        """`pipeline` has no values of variables."""
        self.url: str | None = None
        self._pipeline = pipeline
        self._address = address
        self._progress = PipelineProgress(pipeline.name)
        self._server = PageServer(self.pages())
        self._portal: Portal | None = None

    def __enter__(self) -> Self:
        if self._address is None:
            return self
        host, port = self._address
        self._portal = Portal("ottla pipeline pages", self._close)
        try:
            port = self._portal.run(self._server.open(TcpNetwork(), host, port), _OPEN_S)
        except OSError as error:
            self._portal.close()
            what = f"--http: cannot listen on {host}:{port}: {error.strerror or error}"
            raise Failed(what) from None
        except BaseException:
            self._portal.close()
            raise
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
        return self

    def __exit__(self, *exception: object) -> None:
        if self._portal is not None:
            self._portal.close()

    def show(self, progress: PipelineProgress) -> None:
        """Replace the progress that the pages show."""
        self._progress = progress

    def pages(self) -> Pages:
        """Return the pages by path."""
        return {"/": self._live, METRICS_PATH: self._metrics, HEALTH_PATH: self._health}

    def _live(self) -> Page:
        return Page(live_page(self._pipeline, self._progress), CONTENT_TYPE)

    def _metrics(self) -> Page:
        return Page(metrics.exposition(metric_families(self._progress)), metrics.CONTENT_TYPE)

    def _health(self) -> Page:
        if names := unhealthy_queries(self._progress):
            text = f"queries that do not run: {', '.join(names)}\n"
            return Page(text, status=HTTPStatus.SERVICE_UNAVAILABLE)
        return Page("ok\n")

    async def _close(self) -> None:
        self._server.close()
