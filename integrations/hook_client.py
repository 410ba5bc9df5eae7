"""Command for agents without HTTP hooks: passes standard input to `trustfold up` on this machine, prints its answer.

`trustfold connect` writes a copy of this file beside `endpoint`, which holds the server's address and the publishers'
token, a line each; it runs as `python -I -S hook.py AGENT [EVENT] [--shadow]` in some 20 ms. It imports the standard
library alone, writes nothing but a whole JSON answer, and ends with 0 whatever happens: an agent must go on without it.
"""

import _socket  # a tenth of the time that `socket` takes, and here at every call of a tool
import os
import sys
import time

MAX_BYTES = 8 * 1024 * 1024
"""Largest payload and answer in bytes; larger ones are skipped."""

LIFE_S = 4.0
"""Timeout in seconds of connection and answer together; agents wait 5."""


def ask(endpoint: str, path: str, body: bytes) -> bytes:
    """Return the server's answer to a payload; empty without one.

    Raises:
        OSError: the server, or the file with its address, is unavailable.
        ValueError: the file, or the answer, is malformed.
    """
    with open(endpoint, encoding="ascii") as file:
        address, token = file.read(1000).split("\n")[:2]
    host, _, port = address.rpartition(":")
    request = (
        f"POST {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    until = time.monotonic() + LIFE_S
    connection = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    connection.settimeout(LIFE_S)
    connection.connect((host, int(port)))
    connection.sendall(request.encode("ascii") + body)
    received = bytearray()
    while len(received) <= MAX_BYTES and (left := until - time.monotonic()) > 0:
        connection.settimeout(left)
        if not (part := connection.recv(65536)):
            break
        received += part
    head, _, answer = bytes(received).partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    if not lines[0].startswith(b"http/1.1 200") or b"content-length: %d" % len(answer) not in lines:
        return b""
    return answer if answer[:1] == b"{" and answer != b"{}" else b""


def main() -> None:
    """Pass standard input to the server and print the answer, if there is one."""
    words = [word for word in sys.argv[1:] if word != "--shadow"]
    query = "&".join(
        [*(f"event={word}" for word in words[1:2] if word.isalnum()), *["shadow=1"][: len(sys.argv) - 1 - len(words)]]
    )
    body = bytearray()
    while part := os.read(0, 1 << 20):
        if len(body) <= MAX_BYTES:  # the rest must be read, too, or the agent would see a broken pipe
            body += part
    if words and words[0].isalnum() and len(body) <= MAX_BYTES:
        path = f"/hooks/{words[0]}?{query}"
        answer = ask(os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "endpoint"), path, bytes(body))
        while answer:
            answer = answer[os.write(1, answer) :]


if __name__ == "__main__":
    try:
        main()
    except BaseException:
        pass
    os._exit(0)
