"""The order of a java.util.HashMap, as Java itself gives it."""

import subprocess
from pathlib import Path

from cases import Cases
from judges.java import java_command
from kafka_java import judge_needed
from ottla.cli.kafka.hash_order import in_hash_order

PROGRAM = """
import java.util.*;

public class Order {
    public static void main(String[] lists) {
        for (String list : lists) {
            String[] names = list.split(" ");
            Map<String, String> growing = new HashMap<>();
            Map<String, String> sized = new HashMap<>(names.length);
            Map<String, String> computed = new HashMap<>();
            for (String name : names) {
                growing.put(name, "");
                sized.put(name, "");
                computed.computeIfAbsent(name, key -> "");
            }
            System.out.println(String.join(" ", growing.keySet()));
            System.out.println(String.join(" ", sized.keySet()));
            System.out.println(String.join(" ", computed.keySet()));
        }
    }
}
"""


def names_of(count: int) -> list[str]:
    return [f"topic-{index * 7919 % 1000}.ü{index}" for index in range(count)]


def in_one_bin(count: int) -> list[str]:
    """Names that a map of 16 bins has together, and a larger one not; a sum is their hash."""
    return [chr(0x1000 + 16 * index) for index in range(count)]


def test_names_stand_as_java_puts_them(tmp_path: Path) -> None:
    lists = [
        *map(names_of, (1, 2, 3, 4, 6, 7, 12, 13, 14, 25, 50, 200)),
        *map(in_one_bin, (7, 8, 9, 12)),
    ]
    source = tmp_path / "Order.java"
    source.write_text(PROGRAM)
    with judge_needed():
        options = ("-XX:TieredStopAtLevel=1", "-Dfile.encoding=UTF-8")
        command = java_command(str(source), *map(" ".join, lists), options=options)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    cases = Cases()
    for names, growing, sized, computed in zip(
        lists, lines[::3], lines[1::3], lines[2::3], strict=True
    ):
        with cases.case(len(names), names[0]):
            assert in_hash_order(names) == growing
            assert in_hash_order(names, len(names)) == sized
            assert in_hash_order(names, is_computed=True) == computed
    cases.check()
