"""The command that replays a seed of the cluster simulation."""

import pytest

from ottla.testing import simulate
from ottla.testing.cluster_scenario import Outcome


def outcome(*violations: str) -> Outcome:
    return Outcome(
        seed=7,
        digest="d1",
        violations=[*violations],
        acknowledged=12,
        slowest_s=1.25,
        seconds=30.0,
        faults={"kill": 2},
        counts={"shrinks": 1},
        story=["   1.000  broker 1 is killed"],
    )


def test_command_tells_what_happened(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate.main(["--seed", "3", "--minutes", "0.3"]) == 0
    printed = capsys.readouterr()
    assert "controller epoch 1 begins" in printed.out
    assert "everything is repaired" in printed.out
    assert "Seed 3: " in printed.out
    assert printed.out.endswith("No guarantee was violated.\n")
    assert printed.err == ""


def test_violation_is_printed_and_sets_the_exit_status(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(seed: int, *, minutes: float, brokers: int, balances: bool) -> Outcome:
        assert (seed, minutes, brokers, balances) == (7, 2.0, 3, False)
        return outcome("a record was lost")

    monkeypatch.setattr(simulate, "run", run)
    assert simulate.main(["--seed", "7"]) == 1
    assert capsys.readouterr().out == (
        "   1.000  broker 1 is killed\n"
        "\n"
        "Seed 7: 30 virtual seconds, digest d1\n"
        "12 records acknowledged, the slowest in 1.2 s\n"
        "Faults:\n"
        "       2 kill\n"
        "Events:\n"
        "       1 shrinks\n"
        "VIOLATED: a record was lost\n"
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "the following arguments are required: --seed"),
        (["--seed", "x"], "argument --seed: invalid int value: 'x'"),
        (["--seed", "1", "--brokers", "0"], "argument --brokers: invalid choice: 0"),
        (["--seed", "1", "--minutes", "0"], "'0' is not a number of minutes up to 60"),
        (["--seed", "1", "--minutes", "nan"], "'nan' is not a number of minutes up to 60"),
        (["--seed", "1", "--minutes", "soon"], "'soon' is not a number of minutes up to 60"),
    ],
)
def test_bad_argument_is_refused(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_status:
        simulate.main(arguments)
    assert exit_status.value.code == 2
    assert complaint in capsys.readouterr().err
