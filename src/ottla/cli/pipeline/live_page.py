"""The live page of a running pipeline: its graph, and the numbers of its queries, as HTML.

Invariant: every text is escaped, and the page loads nothing: no script, no image, no font. It has
only the declaration as it is written, without the values of variables.
"""

import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.cli.escapes import escaped
from ottla.cli.pipeline.plan import origin_text, target_text
from ottla.pipeline.progress import PipelineProgress, QueryProgress, QueryState
from ottla.pipeline.spec.graph import build_graph
from ottla.pipeline.spec.model import Pipeline
from ottla.pipeline.streaming_queries import queries_of

CONTENT_TYPE: Final = "text/html; charset=utf-8"
REFRESH_S: Final = 2

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
_NOTHING: Final = "-"
_STYLE: Final = """\
:root { color-scheme: light dark; --line: #8886; --dim: #888; --good: #2a7; --bad: #d43; --soft: #8881 }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem }
h1 { font-size: 1.3rem; margin: 0 } h2 { font-size: 1rem; margin: 1.6rem 0 .4rem }
p { margin: .2rem 0 } .dim { color: var(--dim) } .good { color: var(--good) } .bad { color: var(--bad) }
.scroll { overflow-x: auto } table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th { font-weight: normal; color: var(--dim); text-align: left } td, th { padding: .25rem .7rem .25rem 0; border-bottom: 1px solid var(--line) }
td.number, th.number { text-align: right } svg text { font: 12px system-ui, sans-serif; fill: currentColor }
svg rect { fill: var(--soft); stroke: var(--line) } svg path { fill: none; stroke: var(--dim) } svg .dim { fill: var(--dim) }
"""  # noqa: E501 - a style sheet
_CLASSES: Final[Mapping[QueryState, str]] = {
    QueryState.RUNNING: "good",
    QueryState.FINISHED: "good",
    QueryState.FAILED: "bad",
    QueryState.WAITING: "bad",
}

# The graph, in pixels.
_WIDTH, _HEIGHT, _GAP_X, _GAP_Y = 200, 44, 60, 16
_LABEL_CHARACTERS: Final = 26


class _Node(NamedTuple):
    name: str
    detail: str
    layer: int
    inputs: Sequence[int]
    """The numbers of the nodes that it reads."""
    is_dashed: bool = False


def live_page(pipeline: Pipeline, progress: PipelineProgress) -> str:
    """Return the page; `pipeline` has no values of variables."""
    return "\n".join(_lines(pipeline, progress)) + "\n"


def _lines(pipeline: Pipeline, progress: PipelineProgress) -> Iterator[str]:
    name = _text(progress.pipeline)
    yield "<!doctype html>"
    yield '<html lang="en"><head><meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    yield f'<meta http-equiv="refresh" content="{REFRESH_S}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{name}</title>"
    yield f"<style>{_STYLE}</style></head><body>"
    yield f"<h1>Pipeline {name}</h1>"
    yield f'<p class="dim">{_time(progress.elapsed_s)} · <a href="/metrics">metrics</a> · '
    yield '<a href="/healthz">health</a></p>'
    yield f'<div class="scroll">{graph_svg(pipeline)}</div>'
    yield "<h2>Queries</h2>"
    yield from _table(
        (
            *("query", "state", "batch", "batch time", "mean time", "rows in", "rows out"),
            *("rows/s", "late rows", "state rows", "state size", "restarts"),
        ),
        (_query_cells(one) for one in progress.queries),
        texts=2,
    )
    lags = [
        (_text(query.name), _text(topic), f"{lag.records:,}", _seconds(lag.seconds))
        for query in progress.queries
        for topic, lag in query.lags.items()
    ]
    if lags:
        yield "<h2>Lag</h2>"
        yield from _table(("query", "topic", "records", "time"), lags, texts=2)
    late = [
        (_text(query.name), _text(step) or _NOTHING, f"{count:,}")
        for query in progress.queries
        for step, count in query.late.items()
    ]
    if late:
        yield "<h2>Late rows</h2>"
        yield from _table(("query", "step", "rows"), late, texts=2)
    yield "<h2>Expectations and dead letters</h2>"
    counts = [(_text(one), f"{count:,}") for one, count in progress.failed.items()]
    counts.append(("dead letters", f"{progress.dead_letters:,}"))
    yield from _table(("expectation", "rows"), counts, texts=1)
    errors = [(one.name, one.error) for one in progress.queries if one.error]
    if errors:
        yield "<h2>Errors</h2>"
        for query, error in errors:
            yield f'<p><b>{_text(query)}</b> <span class="bad">{_text(error)}</span></p>'
    yield "</body></html>"


def _query_cells(query: QueryProgress) -> Sequence[str]:
    style = _CLASSES.get(query.state, "dim")
    first = (_text(query.name), f'<span class="{style}">{_text(query.state)}</span>')
    if query.batch is None:
        return (*first, *[_NOTHING] * 9, f"{query.restarts:,}")
    return (
        *first,
        f"{query.batch:,}",
        _seconds(query.batch_ms / 1000),
        _NOTHING if query.mean_ms is None else _seconds(query.mean_ms / 1000),
        f"{query.rows_in:,}",
        _NOTHING if query.rows_out is None else f"{query.rows_out:,}",
        f"{query.rows_per_s:,.0f}",
        f"{query.late_rows:,}",
        f"{query.state_rows:,}",
        f"{query.state_bytes / 1e6:,.1f} MB",
        f"{query.restarts:,}",
    )


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, texts: int) -> Iterator[str]:
    """Yield a table whose first columns are texts, and the others numbers."""

    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(
            f"<{tag}>{cell}</{tag}>" if at < texts else f'<{tag} class="number">{cell}</{tag}>'
            for at, cell in enumerate(row)
        )

    yield '<div class="scroll"><table>'
    yield f"<tr>{cells('th', heads)}</tr>"
    for row in rows:
        yield f"<tr>{cells('td', row)}</tr>"
    yield "</table></div>"


# The graph.


def graph_svg(pipeline: Pipeline) -> str:
    """Return the graph of a pipeline as SVG: sources on the left, sinks on the right."""
    nodes = [*_nodes(pipeline)]
    rows: dict[int, int] = {}
    places: list[tuple[int, int]] = []
    for node in nodes:
        row = rows.get(node.layer, 0)
        rows[node.layer] = row + 1
        places.append((node.layer * (_WIDTH + _GAP_X), row * (_HEIGHT + _GAP_Y)))
    width = max(x for x, _ in places) + _WIDTH + 2
    height = max(rows.values()) * (_HEIGHT + _GAP_Y)
    box = f'width="{width}" height="{height}" viewBox="-1 -1 {width} {height}"'
    parts = [f'<svg {box} role="img" aria-label="Graph of the pipeline">']
    for node, (x, y) in zip(nodes, places, strict=True):
        dashes = ' stroke-dasharray="4 3"' if node.is_dashed else ""
        for before in node.inputs:
            from_x, from_y = places[before][0] + _WIDTH, places[before][1] + _HEIGHT // 2
            to_y, middle = y + _HEIGHT // 2, (from_x + x) // 2
            curve = f"M{from_x} {from_y} C{middle} {from_y} {middle} {to_y} {x} {to_y}"
            parts.append(f'<path d="{curve}"{dashes}/>')
        parts.append(f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="6"{dashes}/>')
        name_y = y + (18 if node.detail else 27)
        parts.append(f'<text x="{x + 10}" y="{name_y}">{_label(node.name)}</text>')
        if node.detail:
            label = _label(node.detail)
            parts.append(f'<text class="dim" x="{x + 10}" y="{y + 34}">{label}</text>')
    return "".join((*parts, "</svg>"))


def _nodes(pipeline: Pipeline) -> Iterator[_Node]:
    """Yield the sources, the steps in the order of the graph, and the outputs."""
    graph, _ = build_graph(pipeline)
    numbers: dict[str, int] = {}
    layers: dict[str, int] = {}
    for name in pipeline.sources:
        numbers[name], layers[name] = len(numbers), 0
        yield _Node(name, origin_text(pipeline, name), 0, ())
    for name in graph.order:
        inputs = graph.inputs[name]
        layers[name] = 1 + max((layers[one] for one in inputs), default=0)
        numbers[name] = len(numbers)
        yield _Node(name, "", layers[name], [numbers[one] for one in inputs])
    last = 1 + max(layers.values())
    for query in queries_of(pipeline):
        for output in query.outputs:
            is_dead = output.sink is None
            title = "dead letters" if is_dead else query.name
            yield _Node(title, target_text(output), last, [numbers[output.source]], is_dead)


def _label(text: str) -> str:
    if len(text) > _LABEL_CHARACTERS:
        return f"{_text(text[: _LABEL_CHARACTERS - 1])}…<title>{_text(text)}</title>"
    return _text(text)


# Texts.


def _text(text: str) -> str:
    return html.escape(escaped(text))


def _seconds(seconds: float) -> str:
    return f"{seconds:,.1f} s"


def _time(elapsed_s: float) -> str:
    minutes, seconds = divmod(int(elapsed_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"
