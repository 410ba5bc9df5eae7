"""Names of fields whose value is secret."""

from __future__ import annotations

import re

# Names whose value is always secret
NAME = re.compile(
    r"""pass[_-]?(?:wd|word|phrase|code|wort)(?:[_-]?(?:hash|value|confirm|confirmation|again|repeat|verify|old|new|\d))?$|pass(?:word|phrase|code)s$|(?:^|[_-])(?:pass|pw)$|pwd\d?$|secret
    |token(?!s$|_?count|ize|_?type|_?limit|_?usage)|api[_-]?key|apikey
    |access[_-]?key|private[_-]?key|secret[_-]?key|signing[_-]?key|encryption[_-]?key|account[_-]?key|shared[_-]?key
    |master[_-]?key|license[_-]?key|auth(?:orization|entication)?$|auth[_-]?(?:header|key|data)|credential|cookie
    |session[_-]?(?:key|token)|(?:php|j|asp)[_.-]?sess(?:ion)?[_-]?id|(?:^|[_.-])sid$|bearer|jwt$
    |(?:^|[_-])(?:otp|totp|mfa|pin|cvv2?|cvc2?|ssn|iban|pan)(?:$|[_-])
    |card[_-]?(?:number|no|num)|credit[_-]?card|cc[_-]?(?:number|num)|connection[_-]?string|conn[_-]?str|(?:^|[_-])dsn$
    |webhook[_-]?(?:url|secret)|(?:^|[_-])(?:sig|signature|hmac|salt|seed)$|seed[_-]?phrase|mnemonic|(?:recovery|backup)[_-]?code|code[_-]?verifier|macaroon
    |kubeconfig|keystore|pfx$|psk$|^requirepass$|^masterauth$|key[_-]?material
    |kennwort|mot[_-]?de[_-]?passe|contrase[nñ]a|senha|wachtwoord|has[łl]o$|lösenord|пароль|密码|密碼|パスワード|비밀번호|x-amz-security-token|client[_-]?assertion|(?-i:^[A-Z0-9_]+_KEY$)""",
    re.IGNORECASE | re.VERBOSE,
)

# Every name in ASCII that is secret contains one of these
NAME_STEMS = (
    "pass|pw|secret|token|key|auth|credential|cookie|sess|sid|bearer|jwt|otp|mfa|pin|cvv|cvc|ssn|iban|pan|card|ccnum|cc_num"
    "|cc-num|conn|dsn|webhook|sig|hmac|salt|seed|mnemonic|recovery|backup|verifier|macaroon|kubeconfig|pfx|psk|assertion|kennwort|contrase|senha"
    "|wachtwoord|haslo"
)

LONGEST_NAME = 1_024  # Length above which a name is not read

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def is_secret_name(name: str) -> bool:
    """Whether a field with this name holds a secret; one with a longer name than any field has counts as if it did."""
    if len(name) > LONGEST_NAME:
        return True
    name = name.replace(" ", "_")
    return NAME.search(name if name.isupper() else _CAMEL.sub("_", name)) is not None


def is_session_name(name: str) -> bool:
    """Whether a field with this name holds the id of a session."""
    return _SESSION_NAME.search(_CAMEL.sub("_", name)) is not None


# Names of session ids; their value is secret if it is long enough not to be guessed
_SESSION_NAME = re.compile(r"(?:^|[_-])sess(?:ion)?[_-]?id$", re.IGNORECASE)
