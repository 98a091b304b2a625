"""Properties files as Kafka and Confluent Platform users have them start a single broker.

Each file is accepted as it is, or after one round: the start lists every line to change.
"""

import re

from cases import each_case
from ottla.settings.config import Config
from ottla.settings.config_parser import broker_config
from ottla.settings.invalid_settings import InvalidSettings
from ottla.settings.properties import read_properties

LOG = """\
log.dirs=/var/lib/kafka
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
"""

ZOOKEEPER_2_8 = f"""\
broker.id=0
{LOG}zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
"""

LONG_LIVED_2_8 = f"""\
{ZOOKEEPER_2_8}broker.id.generation.enable=true
reserved.broker.max.id=1000
inter.broker.protocol.version=2.8-IV1
log.message.format.version=2.8-IV1
log.message.downconversion.enable=true
controlled.shutdown.enable=true
controlled.shutdown.max.retries=3
controlled.shutdown.retry.backoff.ms=5000
offsets.commit.required.acks=-1
leader.imbalance.per.broker.percentage=10
replica.lag.max.messages=4000
background.threads=10
queued.max.requests=500
zookeeper.session.timeout.ms=18000
zookeeper.sync.time.ms=2000
zookeeper.max.in.flight.requests=10
zookeeper.set.acl=false
password.encoder.secret=hunter2
quota.producer.default=9223372036854775807
"""

ZOOKEEPER_3_9 = f"""\
{ZOOKEEPER_2_8}auto.include.jmx.reporter=true
metric.reporters=
log.local.retention.ms=-2
remote.log.storage.system.enable=false
remote.log.manager.thread.pool.size=10
zookeeper.metadata.migration.enable=false
"""

KRAFT_LISTENERS = """\
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
"""

KRAFT_3_9 = f"""\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:9093
advertised.listeners=PLAINTEXT://localhost:9092
{KRAFT_LISTENERS}{LOG}"""

KRAFT_4 = f"""\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
{KRAFT_LISTENERS}{LOG}"""

TUNED_KRAFT_4 = f"""\
{KRAFT_4}broker.heartbeat.interval.ms=2000
broker.session.timeout.ms=9000
controller.quorum.auto.join.enable=true
controller.quorum.election.timeout.ms=1000
controller.quorum.fetch.timeout.ms=2000
initial.broker.registration.timeout.ms=60000
metadata.log.dir=/var/lib/kafka-metadata
metadata.max.retention.ms=604800000
early.start.listeners=CONTROLLER
group.streams.max.standby.replicas=2
sasl.mechanism.controller.protocol=PLAIN
sasl.kerberos.service.name=kafka
telemetry.max.bytes=1048576
unstable.api.versions.enable=false
"""

CONFLUENT = """\
metric.reporters=io.confluent.metrics.reporter.ConfluentMetricsReporter
confluent.metrics.reporter.bootstrap.servers=localhost:9092
confluent.metrics.reporter.topic.replicas=1
confluent.support.metrics.enable=true
confluent.support.customer.id=anonymous
confluent.license.topic.replication.factor=1
confluent.metadata.topic.replication.factor=1
confluent.security.event.logger.exporter.kafka.topic.replicas=1
confluent.balancer.enable=true
confluent.balancer.topic.replication.factor=1
confluent.tier.feature=false
confluent.schema.registry.url=http://localhost:8081
"""

UNCHANGED = {
    "Kafka 2.8": ZOOKEEPER_2_8,
    "Kafka 2.8 with older settings": LONG_LIVED_2_8,
    "Kafka 3.9 with ZooKeeper": ZOOKEEPER_3_9,
    "Kafka 3.9 with KRaft": KRAFT_3_9,
    "Kafka 4": KRAFT_4,
    "Kafka 4, tuned": TUNED_KRAFT_4,
    "Confluent Platform 7 with ZooKeeper": ZOOKEEPER_2_8 + CONFLUENT,
    "Confluent Platform 7 with KRaft": KRAFT_3_9 + CONFLUENT,
}

SECURED = f"""\
broker.id=3
listeners=INTERNAL://:9091,SASL_SSL://:9092
advertised.listeners=INTERNAL://kafka-3:9091,SASL_SSL://kafka-3.example.org:9092
listener.security.protocol.map=INTERNAL:SSL,SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT
inter.broker.listener.name=INTERNAL
ssl.keystore.location=/etc/kafka/keystore.jks
ssl.keystore.password=hunter2
ssl.key.password=hunter2
ssl.keystore.type=JKS
ssl.truststore.location=/etc/kafka/truststore.jks
ssl.truststore.password=hunter2
ssl.client.auth=required
sasl.enabled.mechanisms=GSSAPI
sasl.mechanism.inter.broker.protocol=GSSAPI
sasl.kerberos.service.name=kafka
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=com.example.ScramLoginModule required;
authorizer.class.name=io.confluent.kafka.security.authorizer.ConfluentServerAuthorizer
confluent.authorizer.access.rule.providers=CONFLUENT
super.users=User:kafka
create.topic.policy.class.name=com.example.Policy
port=9092
{LOG}zookeeper.connect=zk1:2181,zk2:2181,zk3:2181/kafka
"""
# The lines that a user changes. Other lines that the start reports are deleted.
EDITS = {
    2: "listeners=PLAINTEXT://:9091",
    3: "advertised.listeners=PLAINTEXT://kafka-3:9091",
    5: "inter.broker.listener.name=PLAINTEXT",
}


def read(text: str) -> Config:
    return broker_config(read_properties(text, "server.properties"))


@each_case(("name", "text"), UNCHANGED.items())
def test_files_are_accepted_unchanged(name: str, text: str) -> None:
    config = read(text)
    for notice in config.notices:
        assert re.match(r"server\.properties:\d+: ", str(notice)), notice
    assert "hunter2" not in str(config.notices)


def test_secured_broker_of_a_cluster_needs_one_round() -> None:
    try:
        read(SECURED)
    except InvalidSettings as error:
        reported = error.problems
    else:
        raise AssertionError("a broker without its security was started")
    lines = [problem.origin.line for problem in reported if problem.origin]
    assert len(lines) == len(reported)
    assert lines == sorted(lines)
    assert {problem.name for problem in reported} == {
        "listeners",
        "advertised.listeners",
        "inter.broker.listener.name",
        "ssl.keystore.type",
        "sasl.enabled.mechanisms",
        "sasl.mechanism.inter.broker.protocol",
        "authorizer.class.name",
        "create.topic.policy.class.name",
        "port",
    }
    edited = [
        EDITS.get(number, "") if number in lines else line
        for number, line in enumerate(SECURED.splitlines(), 1)
    ]
    assert {notice.name for notice in read("\n".join(edited)).notices} >= {
        "confluent.authorizer.access.rule.providers",
        "ssl.keystore.password",
        "sasl.kerberos.service.name",
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config",
        "super.users",
    }
