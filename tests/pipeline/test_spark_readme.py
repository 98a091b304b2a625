"""The Spark job and the pipeline of README.md run as shown."""

import json
import re
from pathlib import Path
from typing import Any

from judges.ottla_broker import OttlaBroker
from ottla.pipeline.compiler import compile_pipeline
from ottla.pipeline.declared_tests import DeclaredTests
from ottla.pipeline.spec.loading import load_text
from ottla.sync import Producer
from pipeline.queries import finished
from pipeline.test_spark_sink import records

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"


def blocks(language: str) -> list[str]:
    text = README.read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_spark_job_of_the_readme_runs(spark: Any, broker: OttlaBroker, tmp_path: Path) -> None:
    (job,) = [block for block in blocks("python") if "pyspark" in block]
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        producer.send("orders", b"42 apples", key=b"ann")
    told = job.replace("127.0.0.1:9092", broker.bootstrap)
    told = re.sub(r'"(orders-\w+)"', rf'"{tmp_path}/\1"', told)
    exec(compile(told, str(README), "exec"), {})
    rows = spark.read.parquet(f"{tmp_path}/orders-parquet").collect()
    assert [(row.customer, row.items) for row in rows] == [("ann", "42 apples")]


def test_pipeline_of_the_readme_runs(spark: Any, broker: OttlaBroker, tmp_path: Path) -> None:
    (block,) = blocks("yaml")
    assert len(block.splitlines()) == 10, "a pipeline of ten lines"
    picture = (ROOT / "docs" / "images" / "pipeline-run.svg").read_text()
    assert "large-topic" in picture, "draw it again: docs/images/pipeline_run.py"
    settings = f"brokers: {broker.bootstrap}\ncheckpoints: {tmp_path}\ntrigger: available now\n"
    loaded = load_text(block + settings, "large.yaml", environment={}, read_file=str)
    assert loaded.warnings == ()
    with DeclaredTests(spark, loaded) as tests:
        for name in tests.names:
            tests.check(name)

    (commands,) = [one for one in blocks("sh") if "large.yaml" in one]
    (values,) = re.findall(r"printf '%s\\n' (.*) \| ottla produce payments", commands)
    with Producer({"bootstrap.servers": broker.bootstrap}) as producer:
        for value in re.findall(r"'(.*?)'", values):
            producer.send("payments", value.encode())
    for query in compile_pipeline(spark, loaded).queries:
        finished(query.start)
    found = [(one.key, json.loads(one.value)) for one in records(broker, "payments.large")]
    assert found == [(b"ann", {"customer": "ann", "euros": 2000.0})]
    assert [one.value for one in records(broker, "large.dead-letters")] == [b"not JSON"]
