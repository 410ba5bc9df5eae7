"""Kinds of secrets to plant, and innocent texts, from `secrets.txt` and `innocents.txt`; values are made up here.

In a text, `⏎` is a line end, `«…»` the part that must not be seen (without it: the longest value that is made up), and
`{a36}` a value of 36 characters of an alphabet. So no line looks like a live secret to the scanner of a code host.
"""

from __future__ import annotations

import base64
import re
from hashlib import sha256
from pathlib import Path
from random import Random
from uuid import UUID

from hypothesis import strategies as st

_UPPER, _LOWER, _DIGITS = "ABCDEFGHJKLMNPQRSTUVWXYZ", "abcdefghijkmnopqrstuvwxyz", "0123456789"
_ALPHABETS = {
    "a": _UPPER + _LOWER + _DIGITS, "A": _UPPER + _DIGITS, "l": _LOWER + _DIGITS, "h": "0123456789abcdef",
    "H": "0123456789ABCDEF", "b": _UPPER + _LOWER + _DIGITS + "+/", "s": _UPPER + _LOWER + "123456789",
    "S": _UPPER + "234567",
}  # fmt: skip
_VALUE = re.compile(r"\{(?:([aAlhHbsS])(\d+)|(u)|(wif)|(bytes64)|base64:(.*)|hex:(\w+))\}")
_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


def _made_up(found: re.Match[str], random: Random) -> str:
    alphabet, length, uuid, wif, key, inner, begin = found.groups()
    if begin:
        return (begin + _made_up(_VALUE.fullmatch("{a36}"), random)).encode().hex()  # type: ignore[arg-type] # it matches
    if inner:
        return base64.b64encode(filled(inner, random)[0].encode()).decode().rstrip("=")
    if uuid:
        return str(UUID(int=random.getrandbits(128), version=4))
    if key:
        return str([*random.randbytes(63), 255])
    if wif:
        return _wif(random)
    letters = _ALPHABETS[alphabet]
    value = "".join(random.choices(letters, k=int(length) - 2))
    return (
        f"{value[:3]}7{value[3:]}{'F' if alphabet in 'aAHbS' else 'f'}"  # a digit and a letter, whatever the dice say
    )


def _wif(random: Random) -> str:
    """A private key of Bitcoin as wallets export it, with its checksum."""
    key = b"\x80" + random.randbytes(32) + b"\x01"
    number = int.from_bytes(key + sha256(sha256(key).digest()).digest()[:4], "big")
    text = ""
    while number:
        number, digit = divmod(number, 58)
        text = _BASE58[digit] + text
    return text


def filled(template: str, random: Random) -> tuple[str, str]:
    """The text of a template, and the part of it that must not be seen."""
    values: list[str] = []

    def put(found: re.Match[str]) -> str:
        values.append(_made_up(found, random))
        return values[-1]

    text = _VALUE.sub(put, template.replace("⏎", "\n"))
    marked = re.search("«(.*)»", text, re.DOTALL)
    secret = marked[1] if marked else max(values, key=len, default="")
    return text.replace("«", "").replace("»", ""), secret


def _lines(name: str) -> list[str]:
    text = (Path(__file__).parent / name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if not line.startswith("# ")]


def words_of(pattern: re.Pattern[bytes]) -> st.SearchStrategy[bytes]:
    """Texts that an expression would match if it did not look at what is around."""
    return st.from_regex(re.compile(re.sub(rb"\(\?<?[=!](?:[^()\\]|\\.)*\)", b"", pattern.pattern), pattern.flags))


KINDS: dict[str, tuple[str, str]] = {
    kind: filled(template, Random(kind)) for kind, template in (line.split(" | ", 1) for line in _lines("secrets.txt"))
}
"""Kind of secret, with a text that holds one and the part that must not be seen."""

FEW = dict(list(KINDS.items())[::6])
"""Every sixth kind, for tests that plant them in many places."""

INNOCENTS: list[str] = [filled(line, Random(line))[0] for line in _lines("innocents.txt")]
"""Texts without a secret, though each has something of one."""
