"""Files of topics: valid ones, and errors with their line."""

import pytest

from cases import each_case
from ottla.cli.topic.file import BadTopicFile, WantedTopic, read_topics

GOOD = """\
# What the shop has.
topics:
  - name: orders
    partitions: 6
    replication_factor: 1
    configs:
      retention.ms: 86_400_000
      cleanup.policy: [compact, delete]
      preallocate: yes
      min.cleanable.dirty.ratio: 0.5
      retention.bytes: -1
      compression.type: null
      segment.ms: "0100"
  - {name: 1999}
"""


def test_file_of_topics_is_parsed() -> None:
    orders, other = read_topics(GOOD, "topics.yaml")
    assert orders == WantedTopic(
        "orders",
        6,
        1,
        {
            "retention.ms": "86400000",
            "cleanup.policy": "compact,delete",
            "preallocate": "true",
            "min.cleanable.dirty.ratio": "0.5",
            "retention.bytes": "-1",
            "compression.type": None,
            "segment.ms": "0100",
        },
        3,
    )
    assert other == WantedTopic("1999", line=14)


def test_bare_list_and_yaml_anchors_are_accepted() -> None:
    text = "- {name: a, configs: &c {x: 1}}\n- {name: b, configs: *c, partitions: null}\n"
    assert [one.configs for one in read_topics(text, "f")] == [{"x": "1"}, {"x": "1"}]
    assert read_topics("[]", "f") == []


@each_case(
    ("text", "message"),
    [
        ("", "f is empty"),
        ("[" * 5000, "f: nested too deeply"),
        ("# nothing\n", "f is empty"),
        ("{}", "f has no topics"),
        ("topics: 5", "f, line 1: expected a list of topics"),
        ("5", "f, line 1: expected a list of topics"),
        ("topic:\n  - name: a\n", "f, line 1: unknown key 'topic' of the file: use topics"),
        ("- name: a\n- b\n", "f, line 2: expected a topic"),
        ("- partitions: 1\n", "f, line 1: missing topic name"),
        (
            "- name: a\n  partition: 1\n",
            "f, line 2: unknown key 'partition' of a topic: use name, partitions, ",
        ),
        ("- name: a\n  name: b\n", "f, line 2: duplicate key 'name'"),
        ("- name: a\n- name: b\n- name: a\n", "f, line 3: topic 'a' is already in line 1"),
        ("- name: a\n  partitions: 0\n", "f, line 2: partitions must be a number of 1 or more"),
        ("- name: a\n  partitions: many\n", "f, line 2: partitions must be a number of 1 or more"),
        ("- name: a\n  partitions: true\n", "f, line 2: partitions must be a number of 1 or more"),
        ("- name: a\n  partitions: 1.5\n", "f, line 2: partitions must be a number of 1 or more"),
        (
            "- name: a\n  replication_factor: 40000\n",
            "f, line 2: replication_factor must be a number",
        ),
        ("- name: a\n  configs: 5\n", "f, line 2: expected settings"),
        ("- name: a\n  configs:\n    x: {y: 1}\n", "f, line 3: the value of x must be text"),
        ("- name: a\n  configs: {x: 1, x: 2}\n", "f, line 2: duplicate key 'x'"),
        ("- name: a/b\n", "f, line 1: A topic name can contain"),
        ("- name:\n", "f, line 1: the topic name must be text"),
        ("- name: [a]\n", "f, line 1: the topic name must be text"),
        ("- ? [a]\n  : b\n", "f, line 1: keys must be text"),
        ("- name: a\n  partitions: 3\n configs: 1\n", "f, line 3: "),
        ("- name: 'a\n", "f, line 2: "),
        ("a: 1\n---\nb: 2\n", "f, line 2: "),
        ("- name: \x07\n", "f: "),
    ],
)
def test_invalid_file_names_the_line(text: str, message: str) -> None:
    with pytest.raises(BadTopicFile) as refused:
        read_topics(text, "f")
    assert str(refused.value).startswith(message)
