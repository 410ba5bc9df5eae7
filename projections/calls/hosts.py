"""Hosts that requests and messages name: `db.internal:5432`; addresses of this machine are all `localhost`.

Only what surely is a host is one: behind a scheme, or where programs' messages put theirs.
"""

from __future__ import annotations

import re

MAX_URLS = 16  # Number of URLs of a text that are looked at

_URL = re.compile(
    r"\b(https?|wss?|ftps?|ssh|git|rediss?|postgres(?:ql)?|mysql|mariadb|mongodb(?:\+srv)?|amqps?|nats|mqtts?|ldaps?|tcp)://"
    r"(?:[^\s/@'\"<>]{1,200}@)?([A-Za-z0-9_][\w.-]{0,252}|\[[0-9A-Fa-f:]{2,45}\])(?::(\d{1,5}))?(?![\w.-]|:?[${])",
    re.IGNORECASE,
)
_DEFAULT_PORTS = {"http": "80", "https": "443", "ws": "80", "wss": "443", "ftp": "21", "ssh": "22", "git": "9418"}
_WEB_PORTS = frozenset({"80", "443"})  # Ports that messages name and requests leave out

# Ports of databases and brokers, which stand in their names: their programs' messages name them as well
_USUAL_PORTS = {
    "redis": "6379",
    "rediss": "6379",
    "postgres": "5432",
    "postgresql": "5432",
    "mysql": "3306",
    "mariadb": "3306",
    "mongodb": "27017",
    "amqp": "5672",
    "amqps": "5671",
    "nats": "4222",
    "mqtt": "1883",
    "mqtts": "8883",
    "ldap": "389",
    "ldaps": "636",
}

_NAME = r"(?P<{0}>\[[0-9a-f:]{{2,45}}\]|[a-z0-9_][\w.-]{{0,252}})"
_AT = "|".join(
    (
        r"(?:failed to connect to|couldn't connect to|connect to host|connection to server at|connect to) [\"']?"
        + _NAME.format("a")
        + r"[\"']?(?: \([^)\n]{0,80}\))?,? port (?P<ap>\d{1,5})",
        r"could not resolve (?:host|hostname|proxy):? [\"']?" + _NAME.format("b"),
        r"could not translate host name [\"']" + _NAME.format("c"),
        r"unknown (?:mysql server )?host [\"']" + _NAME.format("d"),
        r"\b(?:econnrefused|enotfound|eai_again|econnreset|etimedout|ehostunreach) "
        + _NAME.format("e")
        + r"(?::(?P<ep>\d{1,5}))?",
        r"connection to the server " + _NAME.format("f") + r"(?::(?P<fp>\d{1,5}))? was refused",
        r"host='" + _NAME.format("g") + r"', port=(?P<gp>\d{1,5})",
        r"(?:could not connect to \w{1,20}|can't connect to (?:\w{1,20} )?server) (?:at|on) [\"']?"
        + _NAME.format("h")
        + r"(?::(?P<hp>\d{1,5}))?",
        r"\blookup " + _NAME.format("i") + r"(?: on |: )",
        r"resolving '" + _NAME.format("j") + r"'",
        r"connection refused: (?:no further information: )?"
        + _NAME.format("l")
        + r"/[0-9a-f.:\[\]]{2,47}:(?P<lp>\d{1,5})",
        r"\bdial tcp " + _NAME.format("k") + r":(?P<kp>\d{1,5})",
        r"/dev/tcp/" + _NAME.format("m") + r"/(?P<mp>\d{1,5})",
    )
)
_SOCKET = re.compile(
    r"/dev/tcp/([\w.-]{1,253})/(\d{1,5})\b"
    r"|[\"'](localhost|[\w-]{1,63}(?:\.[\w-]{1,63}){1,8})[\"'],\s{0,3}(\d{1,5})\b"
    r"|(?<![\w.:/@-])(localhost|\d{1,3}(?:\.\d{1,3}){3}):(\d{1,5})\b",
    re.IGNORECASE,
)
"""Expression for a host and a port that a line names without a scheme."""

_HINTS = (
    "connect",
    "resolv",
    "translate",
    "host",
    "enotfound",
    "eai_again",
    "econn",
    "etimedout",
    "ehost",
    "lookup",
    "dial tcp",
)
_MESSAGE = re.compile(_AT)
_ADDRESS = re.compile(r"[0-9.]+\Z|\[")
_LOOPBACK = re.compile(
    r"(?:localhost|127(?:\.\d{1,3}){3}|0\.0\.0\.0|\[?::1\]?|ip6-localhost)(?::\d{1,5})?\Z|[\w-]{1,63}\.localhost(?::\d{1,5})?\Z"
)


def is_loopback(name: str) -> bool:
    """Whether a host is this machine, so that what listens there may be started and stopped by the one who asks."""
    return _LOOPBACK.match(name.lower()) is not None


def named(host: str, port: str = "") -> str:
    """Return the one name of a host: lower case, `localhost` for this machine, with its port if one is given."""
    plain = host.lower().rstrip(".")
    if is_loopback(plain) and not plain.endswith(".localhost"):
        plain = "localhost"
    return f"{plain}:{port}" if port and plain else plain


def host_of_url(text: str) -> str:
    """Return the host of the first URL in a text, without a usual port of the web; empty without one."""
    for number, found in enumerate(_URL.finditer(text)):
        if number == MAX_URLS:
            break
        scheme, host, port = found.group(1).lower(), found.group(2), found.group(3) or ""
        port = "" if port == _DEFAULT_PORTS.get(scheme) else port or _USUAL_PORTS.get(scheme, "")
        return named(host, port)
    return ""


def host_in_request(text: str) -> str:
    """Return the host that a request names, by its first URL, else with a port; empty if it surely names none."""
    if host := host_of_url(text):
        return host
    found = _SOCKET.search(text)
    host, port = [part for part in found.groups() if part] if found else ("", "")
    return named(host, "" if port in _WEB_PORTS else port)


def host_in_message(message: str) -> str:
    """Return the host that a message in lower case says it could not reach; empty if it names none.

    Of an address that a name was resolved to, the name is returned if the message has it in a URL.
    """
    if any(hint in message for hint in _HINTS) and (found := _MESSAGE.search(message)) is not None:
        groups = {name: value for name, value in found.groupdict().items() if value}
        letter = next(name for name in groups if len(name) == 1)
        if letter == "k" and _ADDRESS.match(groups["k"]) and (host := host_of_url(message)):
            return host
        port = groups.get(letter + "p", "")
        return named(groups[letter], "" if port in _WEB_PORTS else port)
    return host_of_url(message)
