"""Histories of groups as text: events, each followed by its effects.

OTTLA_REWRITE_SCRIPTS=1 writes the effects again; review the difference.
"""

import os
from pathlib import Path

from cases import each_case
from groups.harness import Harness
from ottla.errors import ErrorCode
from ottla.groups.effects import Append, CancelTimer, Effect, Respond, SetTimer
from ottla.groups.responses import (
    HeartbeatResult,
    JoinResult,
    LeaveResult,
    PartitionErrors,
    Response,
    SyncResult,
)
from ottla.groups.types import RequestToken

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.txt"))
EFFECT = "    "


class Player:
    """Runs the lines of a script. Clients are named by their first join."""

    def __init__(self) -> None:
        self.harness = Harness(auto=False)
        self.begin_ms = self.harness.now_ms
        self.clients: dict[str, str] = {}  # name to member id
        self.asked: dict[RequestToken, str] = {}
        self.told = 0

    def play(self, line: str) -> list[str]:
        """Run a line and return its effects."""
        verb, *words = line.split()
        self.told = len(self.harness.told)
        getattr(self, f"do_{verb}")(*words)
        return [self.show(effect) for effect in self.harness.told[self.told :]]

    def send(self, name: str, token: RequestToken) -> None:
        self.asked[token] = name
        for answered, who in self.asked.items():
            answer = self.harness.answers.get(answered)
            if isinstance(answer, JoinResult) and answer.member_id:
                self.clients[who] = answer.member_id

    def do_join(self, name: str, instance_id: str | None = None) -> None:
        token = self.harness.join(self.clients.get(name, ""), instance_id=instance_id)
        self.send(name, token)

    def do_restart(self, name: str, instance_id: str) -> None:
        self.clients.pop(name, None)
        self.do_join(name, instance_id)

    def do_sync(self, name: str, generation: str, *shares: str) -> None:
        given = dict(share.split("=") for share in shares)
        assignments = {self.clients[who]: share.encode() for who, share in given.items()}
        token = self.harness.sync(self.clients[name], int(generation), assignments)
        self.send(name, token)

    def do_heartbeat(self, name: str, generation: str) -> None:
        self.harness.heartbeat(self.clients[name], int(generation))

    def do_leave(self, name: str) -> None:
        self.harness.leave(self.clients[name])

    def do_commit(self, name: str, generation: str, offset: str) -> None:
        token = self.harness.send_commit(
            int(offset), member_id=self.clients[name], generation=int(generation)
        )
        self.send(name, token)

    def do_appended(self) -> None:
        self.harness.commit_append()
        for token, name in list(self.asked.items()):
            self.send(name, token)

    def do_fails(self, error: str) -> None:
        self.harness.fail_append(ErrorCode[error])

    def do_wait(self, milliseconds: str) -> None:
        self.harness.advance(int(milliseconds))
        for token, name in list(self.asked.items()):
            self.send(name, token)

    def do_kill(self, written: str = "") -> None:
        if written == "written":
            self.harness.write(self.harness.appends[0])
        self.harness.crash()

    # Formatting.

    def show(self, effect: Effect) -> str:
        match effect:
            case Respond(token, answer):
                who = self.asked.get(token)
                return f"{'answer' if who is None else f'{who} hears'}: {self.answer(answer)}"
            case SetTimer(timer, _, at_ms):
                name = " ".join(part for part in (timer.kind.value, timer.member_id) if part)
                return f"timer {name} at {at_ms - self.begin_ms}"
            case CancelTimer(timer):
                name = " ".join(part for part in (timer.kind.value, timer.member_id) if part)
                return f"no timer {name}"
            case Append(records=records, then=then):
                return f"append {len(records)} for {type(then).__name__}"

    @staticmethod
    def answer(answer: Response) -> str:
        match answer:
            case JoinResult(error=ErrorCode.NONE):
                members = " ".join(member.member_id for member in answer.members)
                text = (
                    f"{answer.member_id} in generation {answer.generation}, {answer.leader} leads"
                )
                return f"{text} {members}".rstrip() + " (skip)" * answer.skip_assignment
            case JoinResult():
                return f"{answer.error.name} {answer.member_id}".rstrip()
            case SyncResult(error=ErrorCode.NONE):
                return f"has {answer.assignment.decode() or 'nothing'}"
            case SyncResult() | HeartbeatResult():
                return answer.error.name
            case LeaveResult():
                return " ".join(leaver.error.name for leaver in answer.leavers)
            case PartitionErrors():
                return " ".join(f"{at} {error.name}" for at, error in answer.partitions)
            case _:
                raise AssertionError(answer)


def played(text: str) -> str:
    """Return the script with its actual effects."""
    player = Player()
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith(EFFECT):
            continue
        lines.append(line)
        if line and not line.startswith("#"):
            lines.extend(EFFECT + effect for effect in player.play(line))
    return "\n".join(lines) + "\n"


@each_case("path", SCRIPTS, ids=lambda path: path.stem)
def test_script_has_the_expected_effects(path: Path) -> None:
    text = path.read_text()
    found = played(text)
    if os.environ.get("OTTLA_REWRITE_SCRIPTS"):
        path.write_text(found)
    else:
        assert found == text


def test_scripts_exist() -> None:
    assert len(SCRIPTS) >= 4
