"""A cluster of real processes loses nothing when its parts fail under load.

All tests share a cluster of three brokers, its ensemble of three ZooKeeper servers and the clients,
which work the whole time. After each kind of failure, the history of the clients is checked:
nothing acknowledged is lost, stored twice or out of order, and groups keep their offsets.
"""

import time
from collections.abc import Generator
from itertools import cycle, islice
from random import Random
from typing import Final, NamedTuple

import pytest

import sampling
from integration.broker_links import BrokerLinks
from integration.load import (
    PARTITIONS,
    TOPIC,
    AiokafkaClients,
    JavaClients,
    LibrdkafkaClients,
    Load,
)
from integration.process_cluster import (
    HOST,
    NODES,
    SESSION_TIMEOUT_MS,
    ProcessCluster,
    Seen,
)
from ottla.client.admin.topics import NewTopic
from ottla.client.sync.administrator import Admin

KILLS: Final = 500 if sampling.SOAK else 12  # a multiple of the roles
OUTAGE_S: Final = 60 if sampling.SOAK else 10  # longer than a session and the lag of a replica
KILLS_PER_CHECK: Final = 20
ROUNDS: Final = 200 if sampling.SOAK else 2  # of random failures
ROUNDS_PER_CHECK: Final = 10
PAUSE_S_MAX: Final = 1.5 * SESSION_TIMEOUT_MS / 1000
ROLES: Final = ("leader", "follower", "controller", "ZooKeeper")
CUTS: Final = 50 if sampling.SOAK else 0  # from ZooKeeper, for random times
LINK_DELAY_S: Final = 0.05


class Running(NamedTuple):
    """The cluster and its clients."""

    cluster: ProcessCluster
    load: Load
    links: BrokerLinks


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Generator[Running]:
    with ProcessCluster(tmp_path_factory.mktemp("c"), TOPIC, PARTITIONS) as cluster:
        with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
            admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)]).or_raise()
        clients = LibrdkafkaClients(), AiokafkaClients(), JavaClients()
        links = BrokerLinks(cluster.brokers, cluster.ensemble.ports)
        with links, Load(cluster.bootstrap, *clients) as load:
            load.progress()
            yield Running(cluster, load, links)


@pytest.fixture
def running(started: Running) -> Generator[Running]:
    """The cluster; a test that fails leaves no fault to the next one."""
    yield started
    started.links.mend()
    started.cluster.repair()


def broker_with_role(role: str, seen: Seen, random: Random) -> int:
    """Return a broker that leads partition 0, only follows there, or is the controller."""
    leader = seen.leaders[0]
    if role == "leader":
        return leader
    if role == "controller":
        return seen.controller
    return random.choice([number for number in NODES if number != leader])


def test_killed_processes_lose_nothing(running: Running) -> None:
    cluster, load, _ = running
    random = Random(sampling.seed())
    for count, role in enumerate(islice(cycle(ROLES), KILLS), 1):
        seen = cluster.wait_until_whole()
        if role == "ZooKeeper":
            number = random.choice(NODES)
            cluster.ensemble.kill(number)
            load.progress()
            cluster.ensemble.start(number)
        else:
            broker = cluster.brokers[broker_with_role(role, seen, random)]
            broker.kill()
            load.progress()
            broker.start()
        if count % KILLS_PER_CHECK == 0 or count == KILLS:
            load.verify()


def test_two_killed_brokers_stop_clients_until_they_return(running: Running) -> None:
    """Too few replicas are in sync: nothing is acknowledged, and no client gives up."""
    cluster, load, _ = running
    for _ in range(2):
        seen = cluster.wait_until_whole()
        last = next(number for number in NODES if number != seen.controller)
        killed = [broker for broker in cluster.brokers.values() if broker.id != last]
        for broker in killed:
            broker.kill()
        cluster.wait_until_controller(last)
        for broker in killed:
            broker.start()
        load.progress()
    cluster.wait_until_whole()
    load.verify()


def fail(cluster: ProcessCluster, random: Random) -> None:
    """Let something fail: kill up to three brokers, also while they start, or pause one."""
    match random.choice(("kill", "kill while starting", "ZooKeeper", "pause")):
        case "kill":
            for number in random.sample(NODES, random.randint(1, 3)):
                cluster.brokers[number].kill()
        case "kill while starting":
            broker = cluster.brokers[random.choice(NODES)]
            broker.kill()
            broker.launch()
            time.sleep(random.uniform(0, 3))
            broker.kill()
        case "ZooKeeper":
            cluster.ensemble.kill(random.choice(NODES))
        case _:
            broker = cluster.brokers[random.choice(NODES)]
            if broker.running:
                broker.pause()
                time.sleep(random.uniform(0, PAUSE_S_MAX))
                broker.resume()


def test_random_failures_lose_nothing(running: Running) -> None:
    """They come at any moment, several at a time."""
    cluster, load, _ = running
    random = Random(sampling.seed())
    for count in range(1, ROUNDS + 1):
        for _ in range(random.randint(1, 4)):
            fail(cluster, random)
            time.sleep(random.choice((0, 0.1, 0.5, 1.5)))
        cluster.repair()
        load.progress()
        if count % ROUNDS_PER_CHECK == 0 or count == ROUNDS:
            load.verify()


def wait_until_replaced(cluster: ProcessCluster, broker: int) -> None:
    """Wait until the other brokers know that it neither controls nor leads."""
    cluster.wait_until_seen(
        f"broker {broker} leads nothing",
        [number for number in NODES if number != broker],
        lambda seen: broker not in (seen.controller, *seen.leaders.values()),
    )


@pytest.mark.parametrize("role", sampling.sample(("leader", "controller"), 1))
def test_stopped_broker_is_replaced_and_returns(running: Running, role: str) -> None:
    """It stands still until its session has expired, and then continues as if it still had it."""
    cluster, load, _ = running
    seen = cluster.wait_until_whole()
    stopped = cluster.brokers[broker_with_role(role, seen, Random(sampling.seed()))]
    stopped.pause()
    try:
        wait_until_replaced(cluster, stopped.id)
        load.progress("librdkafka", "java")  # aiokafka waits for a response
    finally:
        stopped.resume()
    cluster.wait_until_whole()
    load.progress()
    load.verify()


def test_brokers_serve_without_zookeeper(running: Running) -> None:
    cluster, load, _ = running
    cluster.wait_until_whole()
    shrinks, before = cluster.isr_shrinks(), cluster.ensemble.states(TOPIC, PARTITIONS)
    cluster.ensemble.kill(*NODES)
    deadline_s = time.monotonic() + OUTAGE_S
    while time.monotonic() < deadline_s:
        load.progress()
    load.verify()
    cluster.ensemble.start(*NODES)
    cluster.wait_until_whole()
    load.progress()
    after = cluster.ensemble.states(TOPIC, PARTITIONS)
    assert [{*one.in_sync} for one in after] == [{*one.in_sync} for one in before]
    assert cluster.isr_shrinks() == shrinks
    load.verify()


def test_full_disk_costs_only_the_replicas_on_it(running: Running) -> None:
    cluster, load, _ = running
    disk, (*others, full) = cluster.small_disk, NODES
    if disk is None:
        pytest.skip("needs user namespaces, to mount a small file system")
    cluster.wait_until_whole()
    disk.fill()
    try:
        cluster.wait_until_seen(
            f"no ISR has broker {full}",
            others,
            lambda seen: not any(full in one for one in seen.in_sync.values()),
        )
        load.progress()
        cluster.brokers[full].kill()
        cluster.brokers[full].start()  # it starts on a full disk
        load.progress()
    finally:
        disk.free()
    cluster.wait_until_whole()
    load.progress()
    load.verify()


def put_behind_proxies(running: Running) -> None:
    """Restart the brokers in turn, so that they reach each other and ZooKeeper through proxies."""
    cluster, load, links = running
    for number, broker in cluster.brokers.items():
        if broker.advertised_internal_port == links.ports.brokers[number]:
            continue
        cluster.wait_until_whole()
        assert broker.terminate() == 0, broker.log_tail()
        broker.advertised_internal_port = links.ports.brokers[number]
        broker.connect = ",".join(f"{HOST}:{port}" for port in links.ports.zookeepers[number])
        broker.start()
    cluster.wait_until_whole()
    load.progress()


def test_rolling_restart_fails_no_record(running: Running) -> None:
    put_behind_proxies(running)
    running.load.verify()


def test_partitioned_and_slow_links_lose_nothing(running: Running) -> None:
    put_behind_proxies(running)
    cluster, load, links = running
    seen = cluster.wait_until_whole()
    # A broker that cannot reach the other ones, and that they cannot reach.
    alone = next(number for number in NODES if number != seen.controller)
    led = [partition for partition, leader in seen.leaders.items() if leader != alone]
    assert led
    links.freeze(links.of(alone))
    cluster.wait_until_seen(
        f"broker {alone} is not in sync",
        [seen.controller],
        lambda seen: not any(alone in seen.in_sync[partition] for partition in led),
    )
    links.mend()
    cluster.wait_until_whole()
    load.progress()
    load.verify()
    # A follower that cannot fetch, and that all others reach.
    seen = cluster.wait_until_whole()
    leader = seen.leaders[0]
    follower = next(number for number in NODES if number not in (leader, seen.controller))
    assert links.carried((follower, leader))
    links.freeze([(follower, leader)])
    cluster.wait_until_seen(
        f"follower {follower} is not in sync",
        [leader],
        lambda seen: follower not in seen.in_sync[0],
    )
    load.progress()
    links.mend()
    cluster.wait_until_whole()
    load.verify()
    links.delay(LINK_DELAY_S)
    load.progress()
    links.mend()
    cluster.wait_until_whole()
    load.verify()


@pytest.mark.parametrize("role", sampling.sample(("leader", "controller"), 1))
def test_broker_without_zookeeper_is_replaced_and_returns(running: Running, role: str) -> None:
    """Clients and the other brokers reach it the whole time, and it does not know its successor."""
    put_behind_proxies(running)
    cluster, load, links = running
    seen = cluster.wait_until_whole()
    alone = broker_with_role(role, seen, Random(sampling.seed()))
    assert links.sessions(alone)
    links.cut_from_zookeeper(alone)
    try:
        wait_until_replaced(cluster, alone)
        load.progress("librdkafka", "java")  # aiokafka waits for a response
    finally:
        links.mend()
    cluster.wait_until_whole()
    load.progress()
    load.verify()


@pytest.mark.skipif(not CUTS, reason="`make soak` cuts brokers from ZooKeeper many times")
def test_many_brokers_without_zookeeper_lose_nothing(running: Running) -> None:
    """One broker or two are cut, for less than their session timeout or more, or reconnect."""
    put_behind_proxies(running)
    cluster, load, links = running
    random = Random(sampling.seed())
    for count in range(1, CUTS + 1):
        fault = random.choice((links.cut_from_zookeeper, links.reset_zookeeper))
        for broker in random.sample(NODES, random.randint(1, 2)):
            fault(broker)
        time.sleep(random.uniform(0, 2 * PAUSE_S_MAX))
        links.mend()
        cluster.wait_until_whole()
        load.progress()
        if count % ROUNDS_PER_CHECK == 0:
            load.verify()
