"""Command that agents run as a hook: passes standard input to this user's `trustfold up`, prints its answer.

`trustfold connect` writes a copy of this file beside the server's socket and `endpoint`, whose second line is the
publishers' token; it runs as `python -I -S hook.py AGENT [EVENT] [--shadow]` in some 10 ms. It imports the standard
library alone, writes nothing but a whole JSON answer, and ends with 0 whatever happens: an agent must go on without it.
"""

import _socket  # a tenth of the time that `socket` takes, and here at every call of a tool
import posix
import sys
import time

SOCKET = "trustfold.sqlite.sock"
"""The server's socket. Nobody else can have made it, as the folder is its owner's alone."""

LATE = "hooks.late"
"""File whose time is that of the latest answer that did not come."""

MAX_BYTES = 1024 * 1024
"""Largest answer, and largest payload that is sent as it is, in bytes."""

MAX_READ_BYTES = 64 * 1024 * 1024
"""Largest payload that is judged; of a larger one, and one that cannot be cut, only that there was one is reported."""

KEPT = ((262_144, 4_096), (65_536, 1_024), (16_384, 256), (4_096, 64))
"""Characters of a text and elements of a list that are kept of a larger payload, tried in turn until it fits."""

ANSWER_S = 0.5
"""Timeout in seconds of connection and answer together."""

PAUSE_S = 30.0
"""Seconds after a timeout in which the server is not asked."""


def ask(path: str, body: bytes) -> bytes:
    """Return the server's answer to a payload; empty without one.

    Raises:
        OSError: the server, or the file with the token, is unavailable; `TimeoutError` and `BlockingIOError`: it hangs.
        ValueError: the file, or the answer, is malformed.
    """
    with open("endpoint", encoding="ascii") as file:
        token = file.read(1000).split("\n")[1]
    request = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    until = time.monotonic() + ANSWER_S
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    connection.settimeout(ANSWER_S)
    connection.connect(SOCKET)
    connection.sendall(request.encode("ascii") + body)
    received = bytearray()
    while len(received) <= MAX_BYTES:
        connection.settimeout(max(0.001, until - time.monotonic()))
        if not (part := connection.recv(65536)):
            break
        received += part
    head, _, answer = bytes(received).partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    if not lines[0].startswith(b"http/1.1 200") or b"content-length: %d" % len(answer) not in lines:
        return b""
    return answer if answer[:1] == b"{" and answer != b"{}" else b""


def shortened(body: bytearray) -> bytearray:
    """Return a large payload without the middle of its long texts and lists, in place of which their digest stands.

    Names, ids, paths and commands are shorter than that, so a call is judged as it would be in full.

    Raises:
        ValueError: even that is too large, or it is not JSON.
    """
    if len(body) > MAX_READ_BYTES:
        raise ValueError
    import json  # noqa: PLC0415 - takes as long as all the rest, and is needed here alone
    from _blake2 import blake2b  # noqa: PLC0415

    def cut(value: object, characters: int, elements: int) -> object:
        if isinstance(value, dict):
            if len(value) > MAX_BYTES // 8:  # of which none has fewer bytes
                raise ValueError
            return {name: cut(inner, characters, elements) for name, inner in value.items()}
        if not isinstance(value, (str, list)):
            return value
        most = characters if isinstance(value, str) else elements
        if len(value) > most:
            if isinstance(value, str) and value[0] == "{":
                try:
                    return json.dumps(cut(json.loads(value), characters, elements))
                except ValueError:
                    pass
            whole = value if isinstance(value, str) else repr(value)
            digest = blake2b(whole.encode(errors="replace"), digest_size=8).hexdigest()
            mark = f" ... {len(value) - most} more, {digest} ... "
            middle = slice(most - most // 4, -(most // 4))
            if isinstance(value, str):
                return value[: middle.start] + mark + value[middle.stop :]
            value[middle] = [mark]
        return [cut(inner, characters, elements) for inner in value] if isinstance(value, list) else value

    payload = json.loads(body.decode(errors="replace"))
    for kept in KEPT:
        payload = cut(payload, *kept)
        if len(small := bytearray(json.dumps(payload), "ascii")) <= MAX_BYTES:
            return small
    raise ValueError


def is_private() -> bool:
    """Whether the current folder is this user's alone."""
    found = posix.stat(".")
    return found.st_uid == posix.geteuid() and not found.st_mode & 0o077


def is_pausing() -> bool:
    """Whether the server did not answer a moment ago."""
    try:
        return 0 <= time.time() - posix.stat(LATE).st_mtime < PAUSE_S
    except FileNotFoundError:
        return False


def pause() -> None:
    """Do not ask the server for a while."""
    try:
        posix.unlink(LATE)
    except FileNotFoundError:
        pass
    posix.close(posix.open(LATE, posix.O_CREAT | posix.O_EXCL | posix.O_WRONLY, 0o600))


def main() -> None:
    """Pass standard input to the server and print the answer, if there is one."""
    words = [word for word in sys.argv[1:] if word != "--shadow"]
    asked = [f"event={word}" for word in words[1:2] if word.isalnum()]
    asked += ["shadow=1"] if "--shadow" in sys.argv else []
    is_headless = posix.environ.get(b"CLAUDE_CODE_ENTRYPOINT", b"").startswith(b"sdk")  # `claude -p`
    asked += ["unattended=1"] if is_headless else []
    body = bytearray()
    while part := posix.read(0, 1 << 20):
        if len(body) <= MAX_READ_BYTES:  # the rest must be read, too, or the agent would see a broken pipe
            body += part
    posix.chdir(sys.argv[0].rpartition("/")[0] or ".")  # a socket's path has a hundred characters at most
    if not words or not words[0].isalnum() or not is_private() or is_pausing():
        return
    try:
        body = body if len(body) <= MAX_BYTES else shortened(body)
    except (ValueError, RecursionError):
        body = bytearray()
        asked.append("too_large=1")
    try:
        answer = ask(f"/hooks/{words[0]}?{'&'.join(asked)}", bytes(body))
    except (TimeoutError, BlockingIOError):
        pause()
        return
    while answer:
        answer = answer[posix.write(1, answer) :]


if __name__ == "__main__":
    try:
        main()
    except BaseException:
        pass
    posix._exit(0)  # noqa: SLF001 - what ends a process at once has this name
