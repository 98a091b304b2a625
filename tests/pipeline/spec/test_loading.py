import pickle
from pathlib import Path

import msgspec
import pytest

from cases import each_case
from ottla.pipeline import InvalidPipeline, Pipeline, Sink, Source, load, resolve
from pipeline.spec.declarations import SENSORS, SENSORS_IN_PYTHON, loaded

SECRET = "hunter2"


def messages(text: str, **environment: str) -> list[str]:
    with pytest.raises(InvalidPipeline) as error:
        loaded(text, **environment)
    return str(error.value).splitlines()


def test_yaml_and_python_forms_are_equal() -> None:
    assert loaded(SENSORS).written == SENSORS_IN_PYTHON
    assert resolve(SENSORS_IN_PYTHON, environment={}).pipeline == loaded(SENSORS).pipeline


def test_declaration_can_be_stored_and_loaded_again() -> None:
    stored = msgspec.json.encode(SENSORS_IN_PYTHON)
    assert msgspec.json.decode(stored, type=Pipeline) == SENSORS_IN_PYTHON
    assert loaded(stored.decode()).written == SENSORS_IN_PYTHON, "JSON is YAML"


def test_all_problems_are_reported_at_once() -> None:
    text = SENSORS.replace("topic: sensors.readings", "topics: x").replace("2 seconds", "2")
    text = text.replace("FROM readings", "FROM reading").replace("from: alerts", "from: alert")
    assert [line.split(": ")[1] for line in messages(text)] == [
        "sources.readings.topics",
        "steps.averages.sql",
        "sinks[1].from",
        "trigger",
    ]


def test_wrong_part_is_still_known_by_its_name() -> None:
    text = SENSORS.replace("  averages:\n    sql:", "  averages:\n    sqll:")
    assert len(messages(text)) == 1, "the sink reads averages, which exists"


def test_python_form_is_checked_like_yaml() -> None:
    wrong = Pipeline(
        name="x",
        sources={"a": Source(topic=5, json="b STRNG")},  # pyright: ignore[reportArgumentType]
        sinks=[Sink(from_="b", console=True)],
    )
    with pytest.raises(InvalidPipeline) as error:
        resolve(wrong, environment={})
    assert str(error.value).splitlines() == [
        "sources.a.topic: expected text or a list, found 5",
        'sinks[0].from: sink "b-console" reads "b", which is not a source or step',
        'sources.a.json: unknown type "STRNG"; did you mean STRING?',
    ]


# Variables and profiles.


def test_profile_replaces_settings_and_its_variables() -> None:
    found = loaded(SENSORS, "prod", BROKERS="kafka:9092").pipeline
    assert (found.brokers, found.checkpoints) == ("kafka:9092", "s3a://bucket/checkpoints")
    assert (found.trigger, found.client) == ("2 seconds", {"security.protocol": "PLAINTEXT"})


def test_unused_profile_needs_no_variables() -> None:
    assert loaded(SENSORS).pipeline.profiles["prod"].brokers == "${BROKERS}"


def test_unset_variable_of_the_used_profile_is_reported() -> None:
    with pytest.raises(InvalidPipeline, match=r"sensors.yaml:22:20: profiles.prod.brokers: the"):
        loaded(SENSORS, "prod")


def test_unknown_profile_is_reported_with_the_nearest() -> None:
    with pytest.raises(InvalidPipeline, match=r'no profile "prd"; did you mean prod\?'):
        loaded(SENSORS, "prd", BROKERS="kafka:9092")


@each_case(
    ("written", "value"),
    [
        ("${BROKERS}", "kafka:9092"),
        ("${NONE:-127.0.0.1:9092}", "127.0.0.1:9092"),
        ("${EMPTY:-127.0.0.1:9092}", "127.0.0.1:9092"),
        ("${HOST}:${PORT}", "kafka:9092"),
    ],
)
def test_variables_are_replaced(written: str, value: str) -> None:
    text = SENSORS.replace("brokers: 127.0.0.1:9092", f"brokers: {written}")
    found = loaded(text, BROKERS="kafka:9092", HOST="kafka", PORT="9092", EMPTY="")
    assert found.pipeline.brokers == value
    assert found.written.brokers == written


def test_file_is_read_without_its_last_newline() -> None:
    text = SENSORS.replace("PLAINTEXT", 'PLAINTEXT, ssl.key.password: "${file:password}"')
    assert loaded(text).pipeline.client["ssl.key.password"] == SECRET


def test_two_dollars_are_a_plain_dollar() -> None:
    text = SENSORS.replace("out/averages", '"out/$${day}"')
    assert loaded(text).pipeline.sinks[0].parquet == "out/${day}"


def test_value_of_a_variable_is_not_printed() -> None:
    text = SENSORS.replace("PLAINTEXT", 'PLAINTEXT, ssl.key.password: "${PASSWORD}"')
    found = loaded(text, PASSWORD=SECRET)
    password = found.pipeline.client["ssl.key.password"]
    assert password == SECRET
    assert pickle.loads(pickle.dumps(password)) == SECRET
    for printed in (repr(found), str(found), f"{found.pipeline}", f"{found.written}"):
        assert SECRET not in printed


@each_case(
    ("old", "new"),
    [
        ("trigger: 2 seconds", "dead_letter: ${S}"),
        ("topic: sensors.readings", "topic: ${S} ${S}"),
        ("topic: sensors.alerts", "topic: ${S}/${S}"),
        ("topic: sensors.readings", "pattern: ${S}("),
        ("json: device", "start: ${S}\n    json: device"),
        ("brokers: 127.0.0.1:9092", "brokers: ${S}"),
        ("security.protocol: PLAINTEXT", 'security.protocol: "${S}"'),
        ("security.protocol: PLAINTEXT", 'request.timeout.ms: "${S}"'),
        ("security.protocol: PLAINTEXT", 'sasl.jaas.config: "${S}"\nspark: {"${S}": "${S}"}'),
    ],
)
def test_error_about_a_variable_does_not_show_its_value(old: str, new: str) -> None:
    lines = messages(SENSORS.replace(old, new), S=SECRET)
    assert lines
    assert SECRET not in "".join(lines)


# YAML.


def test_plain_scalars_are_text_where_text_is_expected() -> None:
    text = SENSORS.replace("key: device", "key: on").replace("sensors.alerts", "2024")
    assert (loaded(text).pipeline.sinks[1].key, loaded(text).pipeline.sinks[1].topic) == (
        "on",
        "2024",
    )


def test_rows_of_tests_have_numbers_and_texts() -> None:
    row = "{device: no, at: 2026-01-01, celsius: -1.5e3}"
    text = SENSORS.replace("{device: a, at: 2026-01-01T00:00:01, celsius: 20}", row)
    assert loaded(text).pipeline.tests[0].given["readings"] == [
        [{"device": "no", "at": "2026-01-01", "celsius": -1500.0}]
    ]


@each_case(
    ("sql", "position"),
    [
        ("SELECT *\n      FROM nothing", "12:12"),
        ("|\n      SELECT *\n\n      FROM nothing", "14:12"),
        (">-\n      SELECT *\n        FROM nothing", "13:14"),
        ('"SELECT * FROM nothing"', "11:25"),
        ("'SELECT *\n      FROM nothing'", "12:12"),
        ('"SELECT \\"a\\" FROM nothing"', "11:10"),  # with escapes: where the text begins
        ("/* a\n      b */ SELECT * FROM nothing", "12:26"),
    ],
)
def test_error_in_sql_is_at_its_line(sql: str, position: str) -> None:
    start = SENSORS.index("sql: ") + len("sql: ")
    end = SENSORS.index("\n  alerts:")
    assert messages(SENSORS[:start] + sql + SENSORS[end:])[0].startswith(f"sensors.yaml:{position}")


def test_alias_repeats_a_value() -> None:
    text = SENSORS.replace("{column: at,", "&late {column: at,")
    text = text.replace("alerts: {", "alerts: {watermark: *late, ")
    found = loaded(text).pipeline
    assert found.steps["alerts"].watermark == found.sources["readings"].watermark


@each_case(
    ("text", "message"),
    [
        ("", "the file is empty: a pipeline needs at least name, sources and sinks"),
        ("# only a comment\n", "the file is empty"),
        ("a: &a [*a]\n", "an alias that contains itself"),
        ("- a\n", "1:1: expected a mapping, found a list"),
        ("a: b: c\n", "1:5: not valid YAML: a colon followed by a space is not allowed here"),
        ("name: x\n  bad: [\n", "2:6: not valid YAML: this line is indented more than line 1, wh"),
        ("a:\n  b: c: d\n", "2:7: not valid YAML: a colon followed by a space is not allowed"),
        ("a: 1\nb: c: d\n", "2:5: not valid YAML: a colon followed by a space is not allowed"),
        ("a:\n\tb: c\n", "2:1: not valid YAML: a tab cannot indent YAML"),
        ("a: 1\n---\na: 2\n", "not valid YAML: but found another document"),
        ("a: \x07\n", "not valid YAML"),
        ("? [a]\n: b\n", "1:3: a key must be text"),
        ("name: !secret x\n", "1:7: name: the tag !secret is not supported"),
        ("[" * 3000 + "]" * 3000, "nested too deeply"),
        (
            "a: &a [1,2,3,4,5,6,7,8,9]\n"
            + "".join(f"{k}: &{k} [{','.join(9 * [f'*{j}'])}]\n" for j, k in ("ab", "bc", "cd"))
            + "e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e,*e]\n",
            "more than 100,000 values",
        ),
    ],
)
def test_text_that_is_not_a_declaration(text: str, message: str) -> None:
    assert any(message in line for line in messages(text)), messages(text)


def test_file_is_loaded_with_files_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "sensors.yaml"
    (tmp_path / "brokers").write_text("kafka:9092\n")
    text = SENSORS.replace("brokers: 127.0.0.1:9092", "brokers: ${file:brokers}")
    path.write_text("\ufeff" + text, encoding="utf-8")
    assert load(path, environment={}).pipeline.brokers == "kafka:9092"


def test_file_that_is_not_utf8_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "sensors.yaml"
    path.write_bytes(b"name: \xff\n")
    with pytest.raises(InvalidPipeline, match="the file is not UTF-8: byte 6 is 0xff"):
        load(path)


def test_python_file_has_a_variable_pipeline(tmp_path: Path) -> None:
    path = tmp_path / "sensors.py"
    head = "from ottla.pipeline import Pipeline, Sink, Source\n"
    source = "Source(topic='a', text='line')"
    path.write_text(
        f"{head}pipeline = Pipeline(name='x', brokers='${{BROKERS}}',"
        f" sources={{'a': {source}}}, sinks=[Sink(from_='a', console=True)])\n"
    )
    found = load(path, environment={"BROKERS": "kafka:9092"})
    assert (found.pipeline.brokers, found.written.brokers) == ("kafka:9092", "${BROKERS}")
    for text, message in (
        ("x = 1\n", f"{path}: the file has no variable pipeline = Pipeline(…)"),
        ("\n1 / 0\n", f"{path}:2:1: ZeroDivisionError: division by zero"),
        (
            f"{head}pipeline = Pipeline(name='x', sources={{'a': {source}}}, sinks=[])",
            f"{path}: sinks: a pipeline needs at least one sink",
        ),
    ):
        path.write_text(text)
        with pytest.raises(InvalidPipeline) as error:
            load(path)
        assert str(error.value) == message


# Checks of several parts.


def test_together_needs_sinks_that_accept_repetition() -> None:
    text = f"{SENSORS}together: true\n"
    text = text.replace("from: alerts", "from: averages")
    errors = [one for one in messages(text) if "warning" not in one]
    assert [line.split(": ")[1] for line in errors] == ["sinks[0]", "sinks[1]"]
    accepted = text.replace("from: averages,", "from: averages, exactly_once: false,")
    assert loaded(accepted).pipeline.together


def test_together_needs_sinks_with_the_same_input_and_mode() -> None:
    text = f"{SENSORS}together: true\n"
    text = text.replace("parquet: out/averages, partition_by: [device]", "console: true")
    text = text.replace("topic: sensors.alerts, key: device", 'python: "m:f", exactly_once: true')
    text = text.replace("  - {from: averages,", "  - {from: Averages, mode: update,")
    same = "together needs sinks that read the same source or step"
    assert messages(text) == [
        f'sensors.yaml:16:12: sinks[1].from: {same}; sinks[0] reads "Averages"',
    ]
    text = text.replace("from: alerts", "from: averages")
    same = "together needs sinks with the same mode; sinks[0] has update"
    errors = [one for one in messages(text) if "warning" not in one]
    assert errors == [f"sensors.yaml:16:5: sinks[1]: {same}"]
    text = text.replace('python: "m:f"', 'mode: complete, python: "m:f"')
    errors = [one for one in messages(text) if "warning" not in one]
    assert errors == [f"sensors.yaml:16:28: sinks[1].mode: {same}"]


def test_pipeline_needs_sources_and_sinks() -> None:
    assert messages("name: x\nsources: {}\nsinks: []\n") == [
        "sensors.yaml:2:10: sources: a pipeline needs at least one source",
        "sensors.yaml:3:8: sinks: a pipeline needs at least one sink",
    ]
    assert [line.split(": ", 1)[1] for line in messages("name: x\n")] == [
        "sources: missing key; add sources: {readings: {topic: readings, json: device STRING}}",
        "sinks: missing key; add sinks: [{from: hot, topic: alerts}]",
    ]


def test_source_of_every_format_loads() -> None:
    avro = '{"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]}'
    formats = {
        "json": "a INT",
        "csv": "a INT, b DATE",
        "text": "line",
        "binary": "data",
        "avro": avro,
    }
    for name, value in formats.items():
        source = Source(pattern="logs[.].*", **{name: value})  # pyright: ignore[reportArgumentType]
        sink = Sink(from_="a", console=True)
        assert resolve(Pipeline(name="x", sources={"a": source}, sinks=[sink]), environment={})
