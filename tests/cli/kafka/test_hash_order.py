"""The order of a java.util.HashMap, as Java itself gives it."""

import subprocess
from pathlib import Path

import pytest

from judges.java import java_command
from kafka_java import judge_needed
from ottla.cli.kafka.hash_order import in_hash_order

PROGRAM = """
import java.util.*;

public class Order {
    public static void main(String[] names) {
        Map<String, String> growing = new HashMap<>();
        Map<String, String> sized = new HashMap<>(names.length);
        for (String name : names) {
            growing.put(name, "");
            sized.put(name, "");
        }
        System.out.println(String.join(" ", growing.keySet()));
        System.out.println(String.join(" ", sized.keySet()));
    }
}
"""


@pytest.mark.parametrize("count", [1, 2, 3, 4, 6, 7, 12, 13, 50, 200])
def test_names_stand_as_java_puts_them(tmp_path: Path, count: int) -> None:
    source = tmp_path / "Order.java"
    source.write_text(PROGRAM)
    names = [f"topic-{index * 7919 % 1000}.ü{index}" for index in range(count)]
    with judge_needed():
        command = java_command(str(source), *names, options=("-XX:TieredStopAtLevel=1",))
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    growing, sized = done.stdout.splitlines()
    assert in_hash_order(names) == growing.split()
    assert in_hash_order(names, len(names)) == sized.split()
