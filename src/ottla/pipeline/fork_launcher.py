"""The program that Spark runs as Python where there is a fork server (`fork_server.py`).

It passes its arguments, environment and standard streams to the server, which forks a process that
runs the module in its place. Then it waits, and exits with the exit code of that process. When the
launcher is killed, the server ends the process.

Invariant: without a server, or with other arguments than `-m MODULE`, it becomes Python itself.
Each process of Spark waits for it, so it imports only modules that are built in.
"""

import _socket
import marshal
import os
import sys

ACCEPTED = b"+"
EXIT_CODE_BYTES = 4
LENGTH_BYTES = 4
SOL_SOCKET, SCM_RIGHTS = 1, 1  # of Linux


def main(path: str, arguments: list[str]) -> None:
    """Let the server run a module, or become Python."""
    if len(arguments) > 1 and arguments[0] == "-m":
        code = _run_forked(path, arguments[1:])
        if code is not None:
            os._exit(code)
    os.execv(sys.executable, [sys.executable, *arguments])


def _run_forked(path: str, arguments: list[str]) -> int | None:
    """Return the exit code of the process; None if the server has not accepted the request."""
    request = marshal.dumps((os.getcwd(), arguments, dict(os.environ)))
    server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        server.connect(path)
        files = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
        length = len(request).to_bytes(LENGTH_BYTES, "big")
        server.sendmsg([length], [(SOL_SOCKET, SCM_RIGHTS, files)])
        server.sendall(request)
        if server.recv(len(ACCEPTED)) != ACCEPTED:
            return None
    except OSError:
        return None
    try:
        code = server.recv(EXIT_CODE_BYTES, _socket.MSG_WAITALL)
    except OSError:
        return 1
    return int.from_bytes(code, "big") if len(code) == EXIT_CODE_BYTES else 1


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
