"""Requests about settings: describe, change, reject."""

from compat.response_comparison import Asker
from ottla.protocol.messages import alter_configs as replacing
from ottla.protocol.messages import incremental_alter_configs as changing
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


def describe(ask: Asker, kind: int, name: str, *keys: str, version: int = 4) -> None:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys or None
    )
    request = DescribeConfigsRequest(
        resources=[resource], include_synonyms=version > 0, include_documentation=version > 2
    )
    ask(request, version)


def change(
    ask: Asker,
    kind: int,
    name: str,
    *settings: tuple[str, int, str | None],
    validate_only: bool = False,
    version: int = 1,
) -> int:
    """Change single settings; the error code."""
    configs = [
        changing.AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in settings
    ]
    resource = changing.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=configs
    )
    request = changing.IncrementalAlterConfigsRequest(
        resources=[resource], validate_only=validate_only
    )
    code = ask(request, version).responses[0].error_code
    assert isinstance(code, int)
    return code


def replace(ask: Asker, kind: int, name: str, version: int = 2, **settings: str | None) -> None:
    """Replace all settings of a resource; underscores become dots."""
    configs = [
        replacing.AlterableConfig(name=key.replace("_", "."), value=value)
        for key, value in settings.items()
    ]
    resource = replacing.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=configs
    )
    ask(replacing.AlterConfigsRequest(resources=[resource], validate_only=False), version)


def seen(ask: Asker, kind: int, name: str, key: str, value: str | None) -> None:
    """Wait until a setting has a value; Kafka takes a moment."""
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=[key]
    )
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    ask.until(lambda answer: [each.value for each in answer.results[0].configs] == [value], request)


def describe_topic(ask: Asker) -> None:
    ask.topic("described", retention_ms="1000", cleanup_policy="compact,delete")
    for version in range(1, 5):
        describe(ask, TOPIC, "described", version=version)
    describe(ask, TOPIC, "described", "retention.ms", "no.such", "segment.bytes")
    describe(ask, TOPIC, "absent")
    for name in ("", ".", "a/b", "x" * 250):
        describe(ask, TOPIC, name)


def describe_broker(ask: Asker) -> None:
    for version in (1, 4):
        describe(ask, BROKER, "1", version=version)
    describe(ask, BROKER, "")
    describe(ask, BROKER, "1", "log.retention.hours", "log.retention.ms", "no.such", "listeners")


def describe_strangers(ask: Asker) -> None:
    describe(ask, BROKER, "7")
    describe(ask, BROKER, "one")
    for kind in (0, 1, 3, 99):
        describe(ask, kind, "described")
    ask(DescribeConfigsRequest(resources=[]), 4)


def change_topic(ask: Asker) -> None:
    ask.topic("changed")
    for version in (0, 1):
        change(
            ask, TOPIC, "changed", ("retention.ms", SET, "1000"), validate_only=True,
            version=version,
        )  # fmt: skip
    change(ask, TOPIC, "changed", ("retention.ms", SET, "1000"))
    seen(ask, TOPIC, "changed", "retention.ms", "1000")
    change(ask, TOPIC, "changed", ("retention.ms", SET, " 2000 "))
    change(ask, TOPIC, "changed", ("cleanup.policy", APPEND, "compact"))
    seen(ask, TOPIC, "changed", "cleanup.policy", "delete,compact")
    change(ask, TOPIC, "changed", ("cleanup.policy", APPEND, "compact"))
    change(ask, TOPIC, "changed", ("cleanup.policy", SUBTRACT, "delete"))
    seen(ask, TOPIC, "changed", "cleanup.policy", "compact")
    change(ask, TOPIC, "changed", ("cleanup.policy", SUBTRACT, "delete"))
    change(ask, TOPIC, "changed", ("cleanup.policy", DELETE, None))
    seen(ask, TOPIC, "changed", "cleanup.policy", "delete")
    change(ask, TOPIC, "changed", ("cleanup.policy", DELETE, None))
    change(ask, TOPIC, "changed", ("cleanup.policy", DELETE, "value"))
    change(ask, TOPIC, "changed", ("retention.ms", APPEND, "1"))
    change(ask, TOPIC, "changed", ("retention.ms", SUBTRACT, "1"))
    change(ask, TOPIC, "changed", ("retention.ms", SET, None))
    change(ask, TOPIC, "changed", ("retention.ms", SET, "soon"))
    change(ask, TOPIC, "changed", ("retention.ms", SET, ""))
    change(ask, TOPIC, "changed", ("segment.bytes", SET, "1"))
    change(ask, TOPIC, "changed", ("cleanup.policy", SET, "burn"))
    change(ask, TOPIC, "changed", ("cleanup.policy", APPEND, "burn"))
    change(ask, TOPIC, "changed", ("compression.type", SET, "rar"))
    change(ask, TOPIC, "changed", ("compression.type", APPEND, "lz4"))
    change(ask, TOPIC, "changed", ("no.such", SET, "1"))
    change(ask, TOPIC, "changed", ("no.such", DELETE, None))
    change(ask, TOPIC, "changed", ("no.such", APPEND, "1"))
    change(ask, TOPIC, "changed", ("log.retention.ms", SET, "1"))
    change(ask, TOPIC, "changed", ("", SET, "1"))
    change(ask, TOPIC, "changed", ("flush.ms", SET, "1"), ("flush.ms", SET, "2"))
    change(ask, TOPIC, "changed", ("flush.ms", SET, "1"), ("flush.messages", SET, "none"))
    change(ask, TOPIC, "changed")
    for name in ("absent", "", "a/b"):
        change(ask, TOPIC, name, ("retention.ms", SET, "1"))
        change(ask, TOPIC, name)
    describe(ask, TOPIC, "changed", "retention.ms", "flush.ms", "flush.messages")
    one = changing.AlterConfigsResource(
        resource_type=TOPIC,
        resource_name="changed",
        configs=[changing.AlterableConfig(name="flush.ms", config_operation=SET, value="7")],
    )
    twice = changing.IncrementalAlterConfigsRequest(resources=[one, one], validate_only=False)
    ask(twice, 1)
    ask(changing.IncrementalAlterConfigsRequest(resources=[], validate_only=False), 1)


def change_to_unknown(ask: Asker) -> None:
    for name in ("", "1"):
        change(ask, BROKER, name, ("no.such.setting", SET, "1"), validate_only=True)


def change_by_no_operation(ask: Asker) -> None:
    ask.topic("unchanged")
    for operation in (-1, 9):
        change(ask, TOPIC, "unchanged", ("retention.ms", operation, "1"))


def change_broker(ask: Asker) -> None:
    change(ask, BROKER, "", ("log.retention.ms", SET, "5000000"))
    seen(ask, BROKER, "1", "log.retention.ms", "5000000")
    change(ask, BROKER, "1", ("log.retention.ms", SET, "6000000"))
    seen(ask, BROKER, "1", "log.retention.ms", "6000000")
    ask.topic("under-changed")
    describe(ask, TOPIC, "under-changed", "retention.ms")
    describe(ask, BROKER, "")
    change(ask, BROKER, "1", ("log.retention.ms", DELETE, None))
    change(ask, BROKER, "", ("log.retention.ms", DELETE, None))
    seen(ask, BROKER, "1", "log.retention.ms", None)
    change(ask, BROKER, "1", ("log.cleaner.threads", SET, "2"))
    seen(ask, BROKER, "1", "log.cleaner.threads", "2")
    change(ask, BROKER, "1", ("log.cleaner.threads", SET, "4"))
    seen(ask, BROKER, "1", "log.cleaner.threads", "4")
    change(ask, BROKER, "1", ("log.cleaner.threads", DELETE, None))  # back to 1: less than half
    change(ask, BROKER, "1", ("log.cleaner.threads", SET, "9"))
    change(ask, BROKER, "1", ("log.cleaner.threads", SET, "2"))
    seen(ask, BROKER, "1", "log.cleaner.threads", "2")
    change(ask, BROKER, "1", ("log.cleaner.threads", DELETE, None))
    seen(ask, BROKER, "1", "log.cleaner.threads", "1")
    for name in ("", "1"):
        change(ask, BROKER, name, ("node.id", SET, "2"))
        change(ask, BROKER, name, ("log.dirs", SET, "/elsewhere"))
        change(ask, BROKER, name, ("num.partitions", SET, "2"), validate_only=True)
        change(ask, BROKER, name, ("log.retention.ms", SET, "soon"))
        change(ask, BROKER, name, ("log.segment.bytes", SET, "1"))
        change(ask, BROKER, name, ("log.retention.ms", SET, None))
        change(ask, BROKER, name, ("log.retention.ms", APPEND, "1"))
        change(ask, BROKER, name, ("log.cleaner.threads", SET, "0"))
        change(ask, BROKER, name, ("log.cleaner.threads", SET, "3"))
        change(ask, BROKER, name, ("log.cleanup.policy", APPEND, "compact"), validate_only=True)
        change(ask, BROKER, name)
    change(ask, BROKER, "7", ("log.retention.ms", SET, "1"))
    change(ask, BROKER, "one", ("log.retention.ms", SET, "1"))
    for kind in (0, 1, 3, 99):
        change(ask, kind, "changed", ("retention.ms", SET, "1"))


def change_without_effect(ask: Asker) -> None:
    """Change settings that have no effect in Ottla."""
    kerberos = "sasl.kerberos.min.time.before.relogin"
    for name in ("", "1"):
        change(ask, BROKER, name, (kerberos, SET, "70000"), validate_only=True)
        change(ask, BROKER, name, (kerberos, SET, "soon"), validate_only=True)
        change(ask, BROKER, name, ("num.io.threads", SET, "9"), validate_only=True)
        for count in ("0", "3", "17"):
            change(ask, BROKER, name, ("num.io.threads", SET, count), validate_only=True)
        change(ask, BROKER, name, ("background.threads", SET, "21"), validate_only=True)
        change(
            ask, BROKER, name, ("num.recovery.threads.per.data.dir", SET, "5"), validate_only=True
        )
        change(ask, BROKER, name, ("num.replica.fetchers", SET, "3"), validate_only=True)
        change(ask, BROKER, name, ("telemetry.max.bytes", SET, "2000000"), validate_only=True)
        change(ask, BROKER, name, ("delegation.token.secret.key", SET, "x"), validate_only=True)
    change(ask, BROKER, "1", (kerberos, SET, "70000"))
    seen(ask, BROKER, "1", kerberos, "70000")
    describe(ask, BROKER, "1", kerberos)
    change(ask, BROKER, "1", (kerberos, DELETE, None))
    seen(ask, BROKER, "1", kerberos, "60000")
    change(ask, BROKER, "", ("num.io.threads", SET, "9"))
    seen(ask, BROKER, "1", "num.io.threads", "9")
    describe(ask, BROKER, "")
    change(ask, BROKER, "", ("num.io.threads", DELETE, None))
    seen(ask, BROKER, "1", "num.io.threads", "8")


def replace_topic(ask: Asker) -> None:
    ask.topic("replaced", retention_ms="1000", flush_ms="5")
    replace(ask, TOPIC, "replaced", retention_bytes="1000")
    seen(ask, TOPIC, "replaced", "flush.ms", str(2**63 - 1))
    describe(ask, TOPIC, "replaced", "retention.ms", "retention.bytes")
    replace(ask, TOPIC, "replaced", version=1)
    seen(ask, TOPIC, "replaced", "retention.bytes", "-1")
    replace(ask, TOPIC, "replaced", retention_ms="soon")
    replace(ask, TOPIC, "replaced", retention_ms=None)
    replace(ask, TOPIC, "replaced", no_such="1")
    replace(ask, TOPIC, "absent", retention_ms="1")
    replace(ask, TOPIC, "", retention_ms="1")
    replace(ask, BROKER, "7", log_retention_ms="1")
    replace(ask, 99, "replaced", retention_ms="1")


SCENARIOS = (
    describe_topic,
    describe_broker,
    describe_strangers,
    change_topic,
    change_to_unknown,
    change_by_no_operation,
    change_broker,
    change_without_effect,
    replace_topic,
)
