"""The fuzz tests run the promised number of inputs."""

from pathlib import Path

from fuzz_mutants import INPUTS, INPUTS_MIN, SCALE, scaled


def test_fuzz_parts_add_up_to_the_total() -> None:
    assert sum(INPUTS.values()) >= INPUTS_MIN
    for part, inputs in INPUTS.items():
        for shards in (1, 2, 3, 10):
            assert scaled(part, shards) * shards >= inputs * SCALE


def test_every_part_runs_its_number_of_inputs() -> None:
    """Each test runs `scaled(part)` inputs; this checks that each part has a test."""
    sources = "".join(path.read_text() for path in Path(__file__).parent.glob("test_fuzz_*.py"))
    for part in INPUTS:
        assert f'seeded("{part}"' in sources
        assert f'scaled("{part}"' in sources
