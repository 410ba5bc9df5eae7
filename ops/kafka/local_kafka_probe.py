"""Ask a Kafka broker whether it answers, in Kafka's own protocol, with the standard library alone."""

import secrets
import socket
import struct

API_VERSIONS = 18  # the one request every broker answers before any other (kafka.apache.org/protocol)
REPLY = 10  # bytes until it is known: size, correlation id, error code
LOCAL = "127.0.0.1"

# Below 32768, where Linux starts to number outgoing connections: a client that keeps trying a stopped
# broker's port from up there can be given that very port, connect to itself, and keep the broker from coming
# back.
PORTS = range(20_000, 32_000)


def answers(host: str, port: int, timeout: float = 1.0) -> bool:
    """Say whether a broker replies to an ApiVersions request within `timeout` seconds (per step).

    A node in KRaft opens its port before it serves; only a reply says that it does.
    """
    client = b"trustfold-probe"
    asked = secrets.randbits(31)  # must come back: an echo of something else is no answer
    request = struct.pack(f">hhih{len(client)}s", API_VERSIONS, 0, asked, len(client), client)
    try:
        with socket.create_connection((host, port), timeout=timeout) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            reply = b""
            while len(reply) < REPLY:
                more = connection.recv(4096)
                if not more:
                    return False
                reply += more
    except OSError:
        return False
    correlation: int
    error: int
    _, correlation, error = struct.unpack(">iih", reply[:REPLY])
    return correlation == asked and error == 0


def is_free(port: int) -> bool:
    """Say whether a server could listen on this port of 127.0.0.1 now."""
    with socket.socket() as server:
        # As Kafka does: connections that are closing do not count.
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind((LOCAL, port))
        except OSError:
            return False
    return True


def free_port(*taken: int) -> int:
    """Choose a port nobody listens on now, other than those in `taken`.

    Somebody else may take it before it is used; whoever starts a server on it must be ready to choose again.
    """
    for _ in range(200):
        port = PORTS[secrets.randbelow(len(PORTS))]
        if port not in taken and is_free(port):
            return port
    raise OSError(f"no free port found between {PORTS.start} and {PORTS.stop}: who holds them all?")
