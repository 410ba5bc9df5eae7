"""Private keys in blocks of lines, hashes of passwords, and tokens with signs that those of `tokens` do not have."""

from __future__ import annotations

import re

from .shapes import shape

_SIGNATURE = re.compile(rb"(?i:transaction|signature|tx)")


def _are_bytes(match: re.Match[bytes], _: bytes) -> bool:
    """Whether numbers are the bytes of a key."""
    numbers = [int(one) for one in match[1].split(b",")]
    return max(numbers) < 256 and len(set(numbers)) > 32


_HEX = [f"{first}{second}" for first in "0abcdef" for second in "0abcdef"]

KEYS = (
    shape("private key", "private key|static key v0",
      r"-{4,5} ?BEGIN [A-Za-z0-9 ]*(?:PRIVATE KEY(?: BLOCK)?|Static key V\d) ?-{4,5}[\s\S]*?(?:-{4,5} ?END[^-]*-{4,5}|\Z)"),
    shape("private key cut", "private key",
      r"(?<![A-Za-z0-9+/=\\])((?:[A-Za-z0-9+/=]{16,76}(?:\s|\\n?){1,4}){1,80})-----END [A-Z0-9 ]*PRIVATE KEY"),
    shape("putty key", "^putty-user-key-file-", r"PuTTY-User-Key-File-\d[\s\S]*?(?:Private-MAC:\s*[0-9a-f]+|\Z)"),
    shape("ansible vault", "^$ansible_vault;",
      r"\$ANSIBLE_VAULT;[\d.]{1,8};AES256?(?:;[\w.-]{1,80})?(?:\s|\\n?){1,8}((?:\s|\\n?){0,32}[0-9a-f]{16,}+(?:(?:\s|\\n?){1,32}[0-9a-f]{16,}+)*+)"),
    shape("solana", "^[0,|[00,|[000,", r"\[(\d{1,3}(?:,\s{0,8}\d{1,3}){63})\s{0,8}\]", _are_bytes),
    shape("solana key", "^solana|keypair|phantom", r"(?i:solana|keypair|phantom)[^\n]{1,60}?(?<![A-Za-z0-9])([1-9A-HJ-NP-Za-km-z]{86,88})(?![A-Za-z0-9])",
      lambda match, _: _SIGNATURE.search(match.group()) is None),
    shape("minisign", "^minisign encrypted secret key", r"minisign encrypted secret key(?:\s|\\n?){1,4}([A-Za-z0-9+/=]{40,})"),
)  # fmt: skip

HASHES = (
    shape("password hash", "^$0$|$0a$|$0b$|$0x$|$0y$|$y$|$gy$|$sha0$|$md0$|$apr0$|$argon0|$scrypt$|$pbkdf0|$p$|$h$|$krb0",
      r"\$(?:2[abxy]?|1|5|6|7|y|gy|sha1|md5|apr1|argon2(?:id|i|d)|scrypt|pbkdf2[\w-]*|P|H|krb5\w+)\$[A-Za-z0-9./+=,$*-]{16,}"),
    shape("django hash", "^pbkdf0_sha|bcrypt_sha000$", r"(?:pbkdf2_sha\d+|bcrypt_sha256)\$[A-Za-z0-9./+=$-]{20,}"),
    shape("scram", "^scram-sha-", r"SCRAM-SHA-\d+\$\d+:([A-Za-z0-9+/=]+\$[A-Za-z0-9+/=:]+)"),
    shape("ldap hash", "^{ssha|{sha|{md0|{smd0|{crypt", r"(?#folded)\{(?:s?sha(?:256|512)?|s?md5|crypt)\}([a-z0-9./+$=]{16,})"),
    shape("mysql hash", "^" + "|".join("*" + digits for digits in _HEX), r"\*[0-9A-F]{40}(?![0-9A-Za-z])"),
    shape("ntlm hash", ":::", r":(?:[0-9a-fA-F]{32}|\*{3,}):([0-9a-fA-F]{32}):::"),
    shape("paypal", "^access_token$", r"access_token\$\w+\$[a-z0-9]{10,}\$[a-z0-9]{20,}"),
    shape("salesforce", "^00d", r"(?<![A-Za-z0-9])00D[A-Za-z0-9]{12}![A-Za-z0-9_.]{40,}", None, "!"),
    shape("telegram", "0:aa", r"(?:(?<![\w.])|(?<=/bot))\d{7,12}:AA[A-Za-z0-9_-]{28,}"),
    shape("firebase", ":apa00b", r"(?<![A-Za-z0-9_-])[A-Za-z0-9_-]{8,}+:APA91b[A-Za-z0-9_-]{80,}"),
    shape("twitch", "^oauth:", r"\boauth:[a-z0-9]{30}\b"),
    shape("google refresh", "^0//0", r"(?<!\w)1//0[0-9A-Za-z_-]{20,}"),
    shape("asana", "^0/000000000000", r"(?<!\w)[12]/\d{12,}(?:/\d{12,})?:[0-9a-f]{32}"),
    shape("fly", "^flyv0 ", r"FlyV1 ([A-Za-z0-9_+/=,-]{20,})"),
    shape("social security number", "^000-00-0000", r"(?<![\d.-])(?!000|666|9)\d{3}-(?!00)\d{2}-(?!0000)\d{4}(?![\d-])"),
)  # fmt: skip
"""Hashes, then tokens with other signs in them, and numbers."""
