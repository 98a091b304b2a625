"""The members of a ZooKeeper ensemble, as the command line names them."""

import re
from typing import Final

from ottla.cli.failures import Misused
from ottla.coordination.ensemble import ELECTION_PORT, PEER_PORT, Member

_MEMBER: Final = re.compile(
    r"(\[[0-9a-fA-F:.]+\]|[^\s,:/\[\]]+)(?::([0-9]{1,5}):([0-9]{1,5}))?", re.ASCII
)
_PORT_MAX: Final = 65_535


def parse_members(member: int | None, ensemble: str | None) -> tuple[Member, ...]:
    """Return the members of --ensemble; none without it. Raises Misused."""
    if ensemble is None:
        if member is not None:
            raise Misused("--id needs --ensemble: name the servers of the ensemble")
        return ()
    members = tuple(map(_parse, (one.strip() for one in ensemble.split(","))))
    if member is None:
        raise Misused("--ensemble needs --id: the position of this server in the list, from 1")
    if member > len(members):
        raise Misused(f"--id {member}: the ensemble has {len(members)} servers")
    if len({*members}) < len(members):
        raise Misused("--ensemble: a server is listed twice; servers of one host need other ports")
    if len(members) == 2:
        raise Misused("--ensemble: two servers tolerate no failure; use one, three or five")
    return members


def _parse(text: str) -> Member:
    found = _MEMBER.fullmatch(text)
    if found is None:
        raise Misused(f'--ensemble: "{text}" is not HOST or HOST:PEER_PORT:ELECTION_PORT')
    ports = [int(one) for one in found.groups()[1:] if one is not None]
    if any(not 0 < port <= _PORT_MAX for port in ports):
        raise Misused(f'--ensemble: "{text}" has a port that is not between 1 and {_PORT_MAX}')
    return Member(found[1].strip("[]"), *(ports or (PEER_PORT, ELECTION_PORT)))
