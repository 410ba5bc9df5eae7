"""Secrets in sentences that people write, in several languages."""

from __future__ import annotations

import re

from .labels import PASSWORDS
from .shapes import shape
from .values import has_entropy, is_mixed, is_random_value

_NAMED_AFTER = ("password", "passphrase", "api key", "token")
_FOREIGN_WORDS = [*PASSWORDS.split("|"), "password", "lösenordet"]


def _is_code(match: re.Match[bytes], text: bytes) -> bool:
    """Whether a number is a code that proves who somebody is."""
    return _PROVES.search(text[max(0, match.start() - 24) : match.start()]) is not None


_PROVES = re.compile(
    rb"(?i:verification|security|confirmation|2fa|mfa|login|authentication|one-time|sms|einmal|secret)[ -]?(?i:pass)?$"
)

PROSE = (
    shape("user with password", "^auth |]:0|creds are |credentials are ", r"(?:\b(?:auth|creds are|credentials are) {1,4}|\]:\d{2,5}[ \t]{1,8})[\w.@-]{1,80}:([^\s\"'\\:]{5,})", is_mixed),
    shape("backup codes", "^backup code|recovery code|scratch code",
      r"(?#folded)(?:backup|recovery|scratch) codes?\s{0,4}[:=]\s{0,4}([\w-]{6,20}(?:[ ,\t]{1,3}[\w-]{6,20}){0,20})", has_entropy),
    shape("password in prose", "^password |passphrase |passcode |pwd |pin |token |passwort |kennwort |mot de passe |senha ",
      r"(?#folded)(?:(?<=with )|(?<=using )|(?<=use )|(?<=by )|(?<=mit )|(?<=avec )|(?<=com )|(?<=the )|(?<=dem )|(?<=le )|(?<=la )|(?<=with a ))(?:password|passphrase|passcode|pwd|pin|token|passwort|kennwort|mot de passe|senha) \\*[\"']?([^\s\"'\\,;]{5,})", is_random_value),
    shape("key in an error", "^api key |access key |api key:|access key:", r"(?#folded)(?:api|access) key(?: provided| given)?:? \\*[\"'`]?([^\s\"'`\\,;]{12,})", is_mixed),
    shape("password before its kind", "|".join(f" as {the}{kind}" for the in ("", "the ") for kind in _NAMED_AFTER),
      rf"(?#folded)(?<![^\s\"'`])([^\s\"'`\\]{{6,80}}+)[\"'`]? as (?:the )?(?:{'|'.join(_NAMED_AFTER)})", is_mixed),
    shape("password in foreign prose", "^" + "|".join(_FOREIGN_WORDS),
      rf"(?#folded)(?:{'|'.join(_FOREIGN_WORDS)})\s(?:ist|lautet|est|es|é|è|to|je|är|er|là|—|–|это)(?:\s|\s?:\s?)\\*(?:[\"'`]|„|“|«\s?)?([^\s\"'\\,;]{{5,}})", is_random_value),
    shape("credentials", "^credential|creds|login|user/pass|zugangsdaten|identifiants|credenciales|credenziali",
      r"(?#folded)(?:credentials?|creds|login|user/pass(?:word)?|zugangsdaten|identifiants|credenciales|credenziali)(?:\s{0,4}[:=]| are| with| as)\s{0,4}[\w.@-]{1,80}\s{0,4}[/|:]\s{0,4}([^\s\"'\\,;/]{5,80})(?=[\s\"'\\,;]|\Z)", is_random_value),
    shape("code", "^code is|code:|code :|code=|code =", r"(?#folded)code(?: is| ?[:=])\s{0,4}(\d[\d -]{3,9}\d)(?![\w.])", _is_code),
)  # fmt: skip
