"""The Spark job of README.md runs as shown."""

import re
from pathlib import Path
from typing import Any

from judges.ottla_broker import OttlaBroker
from ottla.sync import Producer

README = Path(__file__).parents[2] / "README.md"


def test_spark_job_of_the_readme_runs(spark: Any, broker: OttlaBroker, tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)
    (job,) = [block for block in blocks if "pyspark" in block]
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        producer.send("orders", b"42 apples", key=b"ann")
    told = job.replace("127.0.0.1:9092", broker.bootstrap)
    told = re.sub(r'"(orders-\w+)"', rf'"{tmp_path}/\1"', told)
    exec(compile(told, str(README), "exec"), {})
    rows = spark.read.parquet(f"{tmp_path}/orders-parquet").collect()
    assert [(row.customer, row.items) for row in rows] == [("ann", "42 apples")]
