"""The Spark home that tests and the example use."""

from pathlib import Path

from ottla.pipeline.spark_home import PARTS, fast_spark_home


def test_fast_spark_home_has_only_the_needed_parts(tmp_path: Path) -> None:
    home = fast_spark_home(tmp_path / "home")
    assert {one.name for one in home.iterdir()} == {*PARTS}
    assert (home / "bin" / "spark-submit").exists()
    assert [*(home / "jars").glob("spark-core*.jar")]


def test_fast_spark_home_is_repaired(tmp_path: Path) -> None:
    home = fast_spark_home(tmp_path)
    (home / "bin").unlink()
    (home / "jars").unlink()
    (home / "jars").symlink_to(tmp_path / "of another environment")
    assert fast_spark_home(tmp_path) == home
    assert (home / "bin" / "spark-submit").exists()
    assert (home / "jars").is_dir()
