"""The model of a pipeline: sources, steps, sinks, expectations, profiles and tests.

    from ottla.pipeline import Pipeline, Sink, Source, Step

    Pipeline(
        name="orders",
        sources={"orders": Source(topic="orders", json="id LONG, euros DOUBLE")},
        steps={"large": Step(sql="SELECT * FROM orders WHERE euros > 1000")},
        sinks=[Sink(from_="large", topic="orders.large")],
    )

The names of sources and steps make the graph: a step or a sink names what it reads. The keys of a
YAML file are the fields of these classes; only `from_` is `from` in YAML. Creating an object checks
nothing: `ottla.pipeline.check` returns all problems of a pipeline.

Descriptions of fields are part of the JSON Schema and of the reference page. A field with VARIABLES
may contain `${NAME}`.
"""

from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

VARIABLES: Final = "variables"
"""The mark, in the `extra` of a field, that its text may contain variables."""

Text: TypeAlias = Annotated[str, Meta(extra={VARIABLES: True})]
"""A text that may contain variables."""

Action: TypeAlias = Literal["warn", "drop", "dead_letter", "fail"]
Row: TypeAlias = dict[str, Any] | str


class Part(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A part of a declaration."""


class Watermark(Part, frozen=True, kw_only=True):
    """How long a stream waits for late rows."""

    column: Annotated[str, Meta(description="The TIMESTAMP column with the time of the event.")]
    delay: Annotated[
        str,
        Meta(
            description="Rows that are later than this are dropped from windows, and counted.",
            examples=["5 seconds"],
        ),
    ]


class Expectation(Part, frozen=True, kw_only=True):
    """A condition that every row should meet."""

    check: Annotated[
        str,
        Meta(
            description="A SQL condition. A row fails if it is false or NULL.",
            examples=["temperature BETWEEN -60 AND 120"],
        ),
    ]
    otherwise: Annotated[
        Action,
        Meta(
            description="What happens to a row that fails. `warn` only counts it, `drop` removes "
            "it, `dead_letter` moves it to the dead letter topic, `fail` stops the pipeline."
        ),
    ] = "warn"


Expectations: TypeAlias = Annotated[
    dict[str, Expectation],
    Meta(
        description="Conditions by name.",
        examples=[{"plausible": {"check": "celsius < 120", "otherwise": "dead_letter"}}],
    ),
]


class Source(Part, frozen=True, kw_only=True):
    """Rows that the pipeline reads: records of topics, or a side table."""

    topic: Annotated[
        Text | list[Text] | None, Meta(description="A topic, or a list of topics.")
    ] = None
    pattern: Annotated[
        Text | None,
        Meta(description="A regular expression; every topic whose name contains a match is read."),
    ] = None
    parquet: Annotated[
        Text | None, Meta(description="A side table: a directory of Parquet files.")
    ] = None
    query: Annotated[
        str | None, Meta(description="A side table: the result of this SQL query.")
    ] = None
    refresh: Annotated[
        str | None,
        Meta(
            description="Read a side table again after this time. Without it, the table is read "
            "once.",
            examples=["10 minutes"],
        ),
    ] = None
    json: Annotated[
        str | None,
        Meta(
            description="Values are JSON objects with these columns.",
            examples=["device STRING, at TIMESTAMP, temperature DOUBLE"],
        ),
    ] = None
    avro: Annotated[
        str | None,
        Meta(description="Values are Avro with this schema: its JSON, or an .avsc file."),
    ] = None
    csv: Annotated[
        str | None,
        Meta(
            description="Values are lines of CSV with these columns.",
            examples=["device STRING, temperature DOUBLE"],
        ),
    ] = None
    text: Annotated[
        str | None, Meta(description="Values are UTF-8 text, in a STRING column of this name.")
    ] = None
    binary: Annotated[
        str | None, Meta(description="Values are bytes, in a BINARY column of this name.")
    ] = None
    parse: Annotated[
        dict[str, str],
        Meta(
            description="Options of Spark's JSON or CSV parser.",
            examples=[{"timestampFormat": "yyyy-MM-dd HH:mm:ss"}],
        ),
    ] = {}
    unknown_fields: Annotated[
        Literal["ignore", "dead_letter", "keep"],
        Meta(
            description="What happens to JSON fields that are not in the schema. `dead_letter` "
            "makes the record a dead letter, `keep` adds them as JSON in the column "
            "`_unknown_fields`."
        ),
    ] = "ignore"
    metadata: Annotated[
        list[Literal["key", "topic", "partition", "offset", "timestamp", "headers"]],
        Meta(
            description="Fields of the record to add as columns with an underscore, such as "
            "`_key` and `_offset`.",
            examples=[["key", "offset"]],
        ),
    ] = []
    start: Annotated[
        Text,
        Meta(
            description="Where the first run starts: `earliest`, `latest`, or a time such as "
            "2026-01-01T00:00:00Z. Later runs resume from the checkpoint."
        ),
    ] = "earliest"
    options: Annotated[
        dict[str, Text],
        Meta(
            description='Options of `format("ottla")`.',
            examples=[{"maxOffsetsPerTrigger": "100000"}],
        ),
    ] = {}
    watermark: Annotated[
        Watermark | None, Meta(examples=[{"column": "at", "delay": "5 seconds"}])
    ] = None
    expect: Expectations = {}


class Step(Part, frozen=True, kw_only=True):
    """A transformation of sources and other steps. Its name is a table in SQL."""

    sql: Annotated[
        str | None, Meta(description="A SQL query over sources and steps, by their names.")
    ] = None
    python: Annotated[
        str | None,
        Meta(
            description="A function that gets one DataFrame per input and returns a DataFrame.",
            examples=["sensors.steps:anomalies"],
        ),
    ] = None
    deduplicate: Annotated[
        list[str] | None,
        Meta(
            description="Keep one row for equal values of these columns, within the watermark.",
            examples=[["device", "at"]],
        ),
    ] = None
    from_: Annotated[
        str | list[str] | None,
        Meta(description="The input of `python` or `deduplicate`, or a list of inputs."),
    ] = msgspec.field(default=None, name="from")
    watermark: Annotated[
        Watermark | None, Meta(examples=[{"column": "at", "delay": "5 seconds"}])
    ] = None
    expect: Expectations = {}


class Sink(Part, frozen=True, kw_only=True):
    """Where rows of a source or step are written, by a query with its own checkpoint."""

    from_: Annotated[str, Meta(description="The source or step whose rows are written.")] = (
        msgspec.field(name="from")
    )
    name: Annotated[
        str | None,
        Meta(
            description="The name of the query and of its checkpoint. The default is the name of "
            "the input and the kind of the sink, such as `averages-parquet`."
        ),
    ] = None
    topic: Annotated[
        Text | None,
        Meta(description="Write rows to this topic: the columns as a JSON object, at least once."),
    ] = None
    parquet: Annotated[
        Text | None,
        Meta(
            description="Write rows to Parquet files in this directory. Readers of its log, such "
            "as Spark, see each row exactly once."
        ),
    ] = None
    console: Annotated[bool, Meta(description="Print rows.")] = False
    python: Annotated[
        str | None,
        Meta(
            description="Call this function with the DataFrame and the id of each micro-batch.",
            examples=["sensors.sinks:store"],
        ),
    ] = None
    key: Annotated[str | None, Meta(description="The column with the record key, for a topic.")] = (
        None
    )
    partition_by: Annotated[
        list[str], Meta(description="Columns that make the directories of Parquet files.")
    ] = []
    mode: Annotated[
        Literal["append", "update", "complete"],
        Meta(description="Spark's output mode."),
    ] = "append"
    exactly_once: Annotated[
        bool | None,
        Meta(
            description="`true` requires that each row is written exactly once; a function must "
            "ignore a batch id that it has already stored. `false` accepts rows twice."
        ),
    ] = None
    options: Annotated[
        dict[str, Text], Meta(description="Options of Spark's writer for this sink.")
    ] = {}


ClientSettings = Annotated[
    dict[str, Text],
    Meta(
        description="Client settings. Secrets belong in variables.",
        examples=[{"security.protocol": "SASL_SSL"}],
    ),
]
SparkSettings = Annotated[
    dict[str, Text],
    Meta(description="Spark settings.", examples=[{"spark.sql.shuffle.partitions": "8"}]),
]


class Hook(Part, frozen=True, kw_only=True):
    """What is called with an event as a JSON object: a webhook, or a command."""

    webhook: Annotated[
        Text | None,
        Meta(
            description="Send the event to this URL, as the body of a POST request.",
            examples=["${ALERT_URL}"],
        ),
    ] = None
    headers: Annotated[
        dict[str, Text],
        Meta(
            description="Headers of the request. Secrets belong in variables.",
            examples=[{"Authorization": "Bearer ${TOKEN}"}],
        ),
    ] = {}
    command: Annotated[
        list[Text] | None,
        Meta(
            description="Run this command, with the event on its standard input. No shell runs.",
            examples=[["notify", "--channel", "data"]],
        ),
    ] = None
    timeout: Annotated[str, Meta(description="End a call that takes longer, at most a minute.")] = (
        "10 seconds"
    )
    every: Annotated[
        str,
        Meta(
            description="Call the hook at most once in this time, for each query or expectation. "
            "The failure that ends the pipeline does not wait."
        ),
    ] = "1 minute"


class LagHook(Hook, frozen=True, kw_only=True):
    """Called while a query is further behind than `records` or `longer_than`."""

    records: Annotated[
        int | None, Meta(description="The lag in records that is not exceeded.", examples=[10000])
    ] = None
    longer_than: Annotated[
        str | None,
        Meta(description="The lag in time that is not exceeded.", examples=["1 minute"]),
    ] = None


class ExpectationHook(Hook, frozen=True, kw_only=True):
    """Called when rows have failed an expectation."""

    rows: Annotated[
        int, Meta(description="The number of failed rows since the last call that causes a call.")
    ] = 1


_ON_FAILURE = Annotated[
    Hook | None,
    Meta(
        description="Called when a query fails, and when the pipeline ends with an error.",
        examples=[{"webhook": "${ALERT_URL}"}],
    ),
]
_ON_LAG = Annotated[
    LagHook | None,
    Meta(
        description="Called while a query is too far behind.",
        examples=[{"longer_than": "1 minute", "webhook": "${ALERT_URL}"}],
    ),
]
_ON_EXPECTATION = Annotated[
    ExpectationHook | None,
    Meta(
        description="Called when rows have failed an expectation.",
        examples=[{"rows": 100, "command": ["notify"]}],
    ),
]


class Profile(Part, frozen=True, kw_only=True):
    """Settings that replace those of the pipeline where it runs, chosen with --profile."""

    brokers: Annotated[
        Text | None,
        Meta(
            description="Bootstrap servers, as HOST:PORT separated by commas.",
            examples=["${BROKERS}"],
        ),
    ] = None
    checkpoints: Annotated[Text | None, Meta(description="The directory of the checkpoints.")] = (
        None
    )
    output: Annotated[
        Text | None, Meta(description="The directory of sinks with a relative path.")
    ] = None
    trigger: Annotated[
        str | None,
        Meta(
            description="The time between micro-batches, or `available now`: stop after the "
            "records that are there at the start.",
            examples=["1 second"],
        ),
    ] = None
    client: ClientSettings = {}
    spark: SparkSettings = {}
    on_failure: _ON_FAILURE = None
    on_lag: _ON_LAG = None
    on_expectation: _ON_EXPECTATION = None


class PipelineTest(Part, frozen=True, kw_only=True):
    """A test of the declaration: micro-batches in, rows out, on the streaming query itself."""

    name: Annotated[str, Meta(description="What the test shows.")]
    given: Annotated[
        dict[str, list[list[Row]]],
        Meta(
            description="The micro-batches of each source. A row is a mapping of columns, or a "
            "text: the value of the record.",
            examples=[{"readings": [[{"device": "a", "temperature": 20}]]}],
        ),
    ]
    expect: Annotated[
        dict[str, list[dict[str, Any]]],
        Meta(
            description="The rows of steps, in any order. Columns that are not named are not "
            "compared.",
            examples=[{"averages": [{"device": "a", "mean": 20}]}],
        ),
    ] = {}
    late: Annotated[
        dict[str, int], Meta(description="The number of late rows that each step drops.")
    ] = {}
    dead_letters: Annotated[
        dict[str, int], Meta(description="The number of dead letters of each source or step.")
    ] = {}
    failed: Annotated[
        dict[str, int],
        Meta(
            description="The number of rows that fail each expectation.",
            examples=[{"readings.plausible": 1}],
        ),
    ] = {}


class Pipeline(Part, frozen=True, kw_only=True):
    """A pipeline that Spark runs: from topics, through steps, to sinks."""

    name: Annotated[
        str, Meta(description="The name of the pipeline, of its queries and consumer groups.")
    ]
    sources: Annotated[
        dict[str, Source],
        Meta(
            description="The rows to read, by name.",
            examples=[{"readings": {"topic": "readings", "json": "device STRING"}}],
        ),
    ]
    steps: Annotated[
        dict[str, Step],
        Meta(
            description="The transformations, by name.",
            examples=[{"hot": {"sql": "SELECT * FROM readings WHERE celsius > 90"}}],
        ),
    ] = {}
    sinks: Annotated[
        list[Sink],
        Meta(description="Where rows go.", examples=[[{"from": "hot", "topic": "alerts"}]]),
    ]
    dead_letters: Annotated[
        Text | None,
        Meta(
            description="The topic of dead letters: records that cannot be parsed, and rows that "
            "fail an expectation. The default is the name of the pipeline and `.dead-letters`."
        ),
    ] = None
    trigger: Annotated[
        str,
        Meta(
            description="The time between micro-batches, or `available now`: stop after the "
            "records that are there at the start.",
            examples=["1 second"],
        ),
    ] = "1 second"
    together: Annotated[
        bool,
        Meta(
            description="Write all sinks in one query, which reads each source once. Every sink "
            "must then accept rows twice (`exactly_once: false`), or ignore a repeated batch."
        ),
    ] = False
    brokers: Annotated[
        Text,
        Meta(
            description="Bootstrap servers, as HOST:PORT separated by commas.",
            examples=["${BROKERS:-127.0.0.1:9092}"],
        ),
    ] = "127.0.0.1:9092"
    checkpoints: Annotated[
        Text | None,
        Meta(
            description="The directory of the checkpoints. The default is "
            "`.ottla/pipelines/NAME/checkpoints`."
        ),
    ] = None
    output: Annotated[
        Text | None,
        Meta(
            description="The directory of sinks with a relative path. The default is the working "
            "directory."
        ),
    ] = None
    client: ClientSettings = {}
    spark: SparkSettings = {}
    on_failure: _ON_FAILURE = None
    on_lag: _ON_LAG = None
    on_expectation: _ON_EXPECTATION = None
    profiles: Annotated[
        dict[str, Profile],
        Meta(
            description="Settings by profile, for other places to run.",
            examples=[{"prod": {"brokers": "${BROKERS}"}}],
        ),
    ] = {}
    tests: Annotated[
        list[PipelineTest], Meta(description="Tests, which `ottla pipeline test` runs.")
    ] = []


# The kinds of each part, by the key that makes it, and the keys that only some kinds have.
SOURCE_KINDS: Final = ("topic", "pattern", "parquet", "query")
RECORD_KINDS: Final = ("topic", "pattern")
TABLE_KINDS: Final = ("parquet", "query")
FORMATS: Final = ("json", "avro", "csv", "text", "binary")
STEP_KINDS: Final = ("sql", "python", "deduplicate")
SINK_KINDS: Final = ("topic", "parquet", "console", "python")
HOOK_KINDS: Final = ("webhook", "command")

SOURCE_KEYS: Final = {
    **dict.fromkeys((*FORMATS, "parse", "unknown_fields", "metadata"), RECORD_KINDS),
    **dict.fromkeys(("start", "options", "watermark", "expect"), RECORD_KINDS),
    "refresh": TABLE_KINDS,
}
STEP_KEYS: Final = {"from": ("python", "deduplicate")}
SINK_KEYS: Final = {"key": ("topic",), "partition_by": ("parquet",)}
HOOK_KEYS: Final = {"headers": ("webhook",)}


def kinds_given(part: Part, kinds: tuple[str, ...]) -> list[str]:
    """Return which of these keys a part has."""
    return [kind for kind in kinds if getattr(part, kind) not in (None, False)]


def inputs_of(part: Step | Sink) -> tuple[str, ...]:
    """Return the names in `from`."""
    match part.from_:
        case None:
            return ()
        case str() as name:
            return (name,)
        case names:
            return tuple(names)


def sink_name(sink: Sink) -> str:
    """Return the name of a sink: its own, or that of its input and its kind."""
    if sink.name is not None:
        return sink.name
    kinds = kinds_given(sink, SINK_KINDS)
    return "-".join((sink.from_, *kinds[:1]))


def dead_letter_topic(pipeline: Pipeline) -> str:
    """Return the topic of dead letters."""
    return pipeline.dead_letters or f"{pipeline.name}.dead-letters"


def dead_letter_query(name: str) -> str:
    """Return the name of the query that writes the dead letters of a source or step."""
    return f"{name}-dead-letters"


def with_profile(pipeline: Pipeline, name: str) -> Pipeline:
    """Return the pipeline with the settings of a profile; raises KeyError if there is none."""
    profile = pipeline.profiles[name]
    return msgspec.structs.replace(
        pipeline,
        brokers=profile.brokers or pipeline.brokers,
        checkpoints=profile.checkpoints or pipeline.checkpoints,
        output=profile.output or pipeline.output,
        trigger=profile.trigger or pipeline.trigger,
        client={**pipeline.client, **profile.client},
        spark={**pipeline.spark, **profile.spark},
        on_failure=profile.on_failure or pipeline.on_failure,
        on_lag=profile.on_lag or pipeline.on_lag,
        on_expectation=profile.on_expectation or pipeline.on_expectation,
    )
