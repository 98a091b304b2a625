"""The pages of a running pipeline: the live page, metrics and health, over HTTP."""

import re
import socket
from dataclasses import replace
from html.parser import HTMLParser
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

from ottla.cli.failures import Failed, Misused
from ottla.cli.pipeline.live_page import graph_svg, live_page
from ottla.cli.pipeline.run_pages import Address, RunPages, address_of
from ottla.pipeline.progress import PipelineProgress, QueryProgress, QueryState, TopicLag
from pipeline.spec.declarations import SENSORS, loaded

QUERY = QueryProgress(
    "averages-parquet",
    state=QueryState.RUNNING,
    batch=121,
    batch_ms=420,
    batches=2,
    batches_ms=900,
    rows_in=24180,
    rows_out=360,
    lags={"sensors.readings": TopicLag(1234, 5.5)},
    late={"averages": 17},
    state_bytes=2_500_000,
    failed={"readings.plausible": 7},
)
FAILED = QueryProgress(
    "<script>", state=QueryState.WAITING, error='<img src=x onerror="alert(1)">\x1b[31m & more'
)
PROGRESS = PipelineProgress("sensors", 3731, [QUERY, FAILED])
PIPELINE = loaded(SENSORS).written


class Elements(HTMLParser):
    """The elements of a page, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def get(url: str, path: str) -> tuple[int, str, str]:
    host = urlsplit(url)
    client = HTTPConnection(host.hostname or "", host.port, timeout=10)
    client.request("GET", path)
    response = client.getresponse()
    found = response.status, response.getheader("Content-Type", ""), response.read().decode()
    client.close()
    return found


def test_pages_show_the_last_progress() -> None:
    with RunPages(PIPELINE, Address("127.0.0.1", 0)) as pages:
        assert pages.url is not None
        assert get(pages.url, "/healthz")[::2] == (200, "ok\n")
        assert get(pages.url, "/")[0] == 200, "before there is a query"
        pages.show(PROGRESS)
        status, kind, text = get(pages.url, "/")
        assert (status, kind) == (200, "text/html; charset=utf-8")
        assert "24,180" in text
        status, kind, text = get(pages.url, "/metrics")
        assert (status, kind.partition(";")[0]) == (200, "text/plain")
        assert (
            'ottla_pipeline_rows_in_total{pipeline="sensors",query="averages-parquet"} 24180'
            in text
        )
        assert get(pages.url, "/healthz")[::2] == (503, "queries that do not run: <script>\n")
        pages.show(replace(PROGRESS, queries=[QUERY]))
        assert get(pages.url, "/healthz")[0] == 200
        url = pages.url
    with pytest.raises(OSError, match="refused"):
        get(url, "/healthz")


def test_live_page_has_the_numbers_and_the_graph() -> None:
    texts = " ".join(Elements(live_page(PIPELINE, PROGRESS)).texts)
    for shown in ("Pipeline sensors", "1:02:11", "running", "0.4 s", "24,180", "2.5 MB"):
        assert shown in texts
    for shown in ("readings.plausible", "1,234", "5.5 s", "topic sensors.alerts", "dead letters"):
        assert shown in texts


def test_foreign_text_is_escaped_and_nothing_is_loaded() -> None:
    page = live_page(PIPELINE, PROGRESS)
    found = Elements(page)
    assert not {"script", "img", "link", "iframe", "object"} & {*found.tags}
    assert not [name for name, _ in found.attributes if name.startswith("on")]
    assert {value for name, value in found.attributes if name in ("href", "src")} == {
        "/metrics",
        "/healthz",
    }
    assert "\x1b" not in page
    assert "default-src 'none'" in page


def test_page_has_no_values_of_variables() -> None:
    text = SENSORS.replace("topic: sensors.alerts", 'topic: "alerts-${SECRET}"')
    pipeline = loaded(text, SECRET="hunter2")
    page = live_page(pipeline.written, PROGRESS)
    assert "hunter2" not in page
    assert "alerts-${SECRET}" in page


def test_graph_has_a_node_for_each_part_and_an_edge_for_each_input() -> None:
    svg = graph_svg(PIPELINE)
    assert svg.count("<rect") == 6, "a source, two steps, two sinks, and dead letters"
    assert svg.count("<path") == 5
    assert svg.count("stroke-dasharray") == 2, "dead letters are dashed"
    edges = [[*map(int, re.findall(r"\d+", one))] for one in re.findall(r'<path d="([^"]*)"', svg)]
    assert all(edge[0] < edge[-2] for edge in edges), "from the left to the right"


def test_addresses() -> None:
    assert address_of("off") is None
    assert address_of("9193") == ("127.0.0.1", 9193)
    assert address_of("0.0.0.0:80") == ("0.0.0.0", 80)
    assert address_of("[::1]:0") == ("::1", 0)
    for wrong in ("", "a:b", "host", "::1", "99999", "a b:1"):
        with pytest.raises(Misused, match="is not PORT, HOST:PORT or off"):
            address_of(wrong)


def test_address_that_is_in_use_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(Failed, match=f"--http: cannot listen on 127.0.0.1:{port}: "),
            RunPages(PIPELINE, Address("127.0.0.1", port)),
        ):
            pass


def test_pages_can_be_off() -> None:
    with RunPages(PIPELINE, None) as pages:
        pages.show(PROGRESS)
        assert pages.url is None
