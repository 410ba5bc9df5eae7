"""Secrets in programs: arguments of calls, statements of SQL."""

from __future__ import annotations

import re

from .names import NAME_STEMS
from .shapes import shape
from .values import is_given, is_mixed, is_named_and_random, is_random_value

_CONNECTS = (
    "connect basicauth basic_auth networkcredential getconnection pdo passwordauthentication .auth credential credentials"
).split()


def _is_set(match: re.Match[bytes], text: bytes) -> bool:
    """Whether a call sets a password, and what it is given is one."""
    return is_random_value(match, text) and _SETS.search(text[max(0, match.end(1) - 48) : match.end(1)]) is not None


def _is_of_user(match: re.Match[bytes], text: bytes) -> bool:
    """Whether a word after `IDENTIFIED BY` stands in a statement about a user."""
    before = text[max(0, match.start() - 200) : match.start()]
    return is_given(match, text) and _USER.search(before) is not None


_USER = re.compile(rb"(?i:(?:create|alter) (?:user|role)|grant [^;\n]{1,140} to) [\w.$\"'\\-]{1,80} $")
_SETS = re.compile(rb"(?i:set|with)_?[A-Za-z_]{3,30}$|(?<![A-Za-z_])(?i:password|passwd|secret)$")

CALLS = (
    shape("sql password", "identified|password",
      r"(?#folded)(?:identified\s+(?:with\s+\w+\s+)?by|(?:with|encrypted)\s+password|(?:role|user|login)\s+\S{1,80}\s+password|password\s+for\s+[^\s=]+(?:\s*+=)?)"
      r"\s+\\*'([^'\n\\]+)", None, "'"),
    shape("oracle password", "^identified by ", r"(?#folded)identified by \\*[\"]?([^\s\"';\\]{4,})", _is_of_user),
    shape("variable", "^$pw", r"(?#folded)\$pw\s{0,4}=\s{0,4}\\*[\"']([^\"'\n\\]{3,})", is_given),
    shape("sql login", "password", r"(?#folded)with\s+password\s{0,4}=\s{0,4}n?\\*'([^'\n\\]+)", None, "with", "'"),
    shape("pair", NAME_STEMS,
      r"(?#folded)[(\[]\s{0,4}\\*[\"']([\w.-]{2,64})\\*[\"'],\s{0,4}\\*[\"']([^\"'\\\n]{1,400})\\*[\"']\s{0,4}[)\]]", is_named_and_random, "\",|',", "(|["),
    shape("setter", "^password(|passwd(|passphrase(|secret(|token(|apikey(|api_key(|pwd(",
      r"(?#folded)(password|passwd|passphrase|secret|token|api_?key|pwd)\(\s{0,4}\\*[\"']([^\"'\\\n]{1,400})\\*[\"']\s{0,4}\)", _is_set),
    shape("login with a password", "^" + "|".join(f"{word}(" for word in _CONNECTS),
      rf"(?#folded)(?:{'|'.join(map(re.escape, _CONNECTS))})\((?:[^()\n]{{0,200}},\s{{0,4}})?\\*[\"'][^\"'\\\n]{{1,100}}\\*[\"']\s{{0,4}},\s{{0,4}}\\*[\"']([^\"'\\\n]{{5,200}})\\*[\"']\s{{0,4}}\)", is_mixed),
    shape("login of a library", "^auth|.login(",
      r"(?#folded)(?:\bauth\s{0,4}=\s{0,4}|\.login)\(\s{0,4}\\*[\"'][^\"'\\\n]{1,100}\\*[\"']\s{0,4},\s{0,4}\\*[\"']([^\"'\\\n]{1,400})\\*[\"']\s{0,4}\)", is_given, "("),
)  # fmt: skip
