"""Only checkpoints on a local disk are written with Hadoop's FileSystem."""

from types import SimpleNamespace
from typing import Any

from cases import Cases
from ottla.pipeline.checkpoint_files import LOCAL_FILES, SETTING, write_local_checkpoints_fast

# The directory, Hadoop's default file system, and whether the directory is local.
DIRECTORIES = [
    ("/var/checkpoints", None, True),
    ("checkpoints", "file:///", True),
    ("file:///var/checkpoints", "hdfs://names:8020", True),
    ("/checkpoints", "hdfs://names:8020", False),
    ("hdfs://names:8020/checkpoints", None, False),
    ("s3a://bucket/checkpoints", None, False),
]


def session_with(settings: dict[str, str], default: str | None = None) -> Any:
    """A session with these settings and this default file system."""

    def setting(name: str, otherwise: str) -> str:
        return default or otherwise

    hadoop = SimpleNamespace(get=setting)
    java = SimpleNamespace(hadoopConfiguration=lambda: hadoop)
    conf = SimpleNamespace(get=settings.get, set=settings.__setitem__)
    return SimpleNamespace(conf=conf, sparkContext=SimpleNamespace(_jsc=java))


def test_local_directories_need_no_processes() -> None:
    cases = Cases()
    for directory, default, is_local in DIRECTORIES:
        with cases.case(f"{directory} on {default}"):
            settings: dict[str, str] = {}
            write_local_checkpoints_fast(session_with(settings, default), directory)
            assert settings == ({SETTING: LOCAL_FILES} if is_local else {})
    cases.check()


def test_setting_of_the_user_stays() -> None:
    settings = {SETTING: "my.Manager"}
    write_local_checkpoints_fast(session_with(settings), "/var/checkpoints")
    assert settings == {SETTING: "my.Manager"}
