"""Tables of secrets: names of fields that hold them, and shapes of their values.

A name (`password`, `PGPASSWORD`, `x-api-key`) makes the value after it a secret. A shape (a token with its vendor's
prefix, a private key, a card number with a valid check digit) is a secret wherever it occurs. The shapes follow the
formats that the vendors document; gitleaks and trufflehog have lists of the same formats. See docs/guard.md, Privacy.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from typing import Any, NamedTuple, cast

from .token_formats import ALPHABETS, FORMATS

NAME = re.compile(
    r"""pass(?:wd|word|phrase|code|wort)(?:[_-]?(?:hash|value))?$|(?:^|[_-])(?:pass|pw)$|pwd$|secret
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
"""Names whose value is always secret."""

NAME_STEMS = (
    "pass|pw|secret|token|key|auth|credential|cookie|sess|sid|bearer|jwt|otp|mfa|pin|cvv|cvc|ssn|iban|pan|card|ccnum|cc_num"
    "|cc-num|conn|dsn|webhook|sig|hmac|salt|seed|mnemonic|recovery|backup|verifier|macaroon|kubeconfig|pfx|psk|assertion|kennwort|contrase|senha"
    "|wachtwoord|haslo"
)
"""Every name in ASCII that is secret contains one of these."""

LONGEST_NAME = 1_024
"""Length above which a name is not read."""

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def is_secret_name(name: str) -> bool:
    """Whether a field with this name holds a secret; one with a longer name than any field has counts as if it did."""
    return len(name) > LONGEST_NAME or NAME.search(name if name.isupper() else _CAMEL.sub("_", name)) is not None


def is_session_name(name: str) -> bool:
    """Whether a field with this name holds the id of a session."""
    return _SESSION_NAME.search(_CAMEL.sub("_", name)) is not None


_SESSION_NAME = re.compile(r"(?:^|[_-])sess(?:ion)?[_-]?id$", re.IGNORECASE)
"""Names of session ids; their value is secret if it is long enough not to be guessed."""


class Shape(NamedTuple):
    """Pattern that is a secret wherever it occurs.

    Attributes:
        kind: kind of secret.
        pattern: expression over UTF-8; the first matching group is the secret, or the whole match without one.
        needles: every match contains one of these, or begins with one if `anchored`. Those of `TOKENS` stand in the
            text as they are, others in what `plain` makes of it.
        anchored: every match begins with one of the needles.
        folded: the expression is for texts in lower case.
        beside: groups of strings; what `plain` makes of the text contains one of each group, too.
        check: decides about a match; gets the match and the text in its original case. None: every match is a secret.
    """

    kind: str
    pattern: re.Pattern[bytes]
    needles: tuple[bytes, ...]
    anchored: bool = False
    folded: bool = False
    beside: tuple[tuple[bytes, ...], ...] = ()
    check: Callable[[re.Match[bytes], bytes], bool] | None = None


_PLAIN = bytes(48 if 48 <= byte <= 57 else byte + 32 if 65 <= byte <= 90 else byte for byte in range(256))


def plain(text: bytes) -> bytes:
    """Return a text with its ASCII letters in lower case and every digit as `0`, each at its place."""
    return text.translate(_PLAIN)


def _has_entropy(match: re.Match[bytes], text: bytes) -> bool:
    """Whether the secret mixes letters with digits or cases, unlike prose."""
    start, end = match.span(match.lastindex or 0)
    return looks_random(text[start:end])


def looks_random(value: bytes) -> bool:
    """Whether a word mixes letters with digits, or lower with upper case after its first letter."""
    tail = value[1:]
    return any(48 <= byte <= 57 for byte in value) or (tail != tail.lower() and value != value.upper())


def _shape(kind: str, needles: str, pattern: str, check: Callable[..., bool] | None = None, *beside: str) -> Shape:
    """Return a shape; `needles` are separated by `|` and begin with `^` if matches begin with them."""
    folded = pattern.startswith("(?#folded)")
    return Shape(
        kind,
        re.compile(pattern.removeprefix("(?#folded)").encode()),
        tuple(needles.removeprefix("^").encode().split(b"|")),
        needles.startswith("^"),
        folded,
        tuple(tuple(group.encode().split(b"|")) for group in beside),
        check,
    )


def _has_digit(match: re.Match[bytes], _: bytes) -> bool:
    """Whether a token contains a digit, beside those of its prefix."""
    return _DIGIT.search(match.group().removeprefix(b"wandb_v1_")) is not None


def _has_checksum(match: re.Match[bytes], _: bytes) -> bool:
    """Whether a number in base 58 ends with the checksum of what is before it."""
    number = 0
    for byte in match.group():
        number = number * 58 + _BASE58.index(byte)
    raw = number.to_bytes((number.bit_length() + 7) // 8, "big")
    return sha256(sha256(raw[:-4]).digest()).digest()[:4] == raw[-4:]


def _has_dot(match: re.Match[bytes], _: bytes) -> bool:
    return b"." in match.group().removeprefix(b"sk.").removeprefix(b"pk.")


_BASE58 = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_DIGIT = re.compile(rb"[0-9]")
_UUID = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
_W = r"(?<![A-Za-z0-9])"
"""No letter or digit before; an underscore is allowed: `MY_ghp_...`."""


def _has_digit_after(begin: re.Pattern[bytes]) -> Callable[[re.Match[bytes], bytes], bool]:
    """Return a check of whether a token has a digit behind its beginning."""

    def check(match: re.Match[bytes], _: bytes) -> bool:
        token = match.group()
        found = begin.match(token)
        return found is not None and _DIGIT.search(token, found.end()) is not None

    return check


def _formats() -> Iterator[Shape]:
    """Yield a shape for each alphabet of `FORMATS`, with the formats in it."""
    rows: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for row in FORMATS.strip().splitlines():
        words = row[26:].split()
        at = next(place for place, word in enumerate(words) if word in ALPHABETS)
        least, *flags = *words[at + 1 :], ""
        rows.setdefault((words[at], flags[0] if least else ""), []).extend((one, least) for one in words[:at])
    for (alphabet, flag), starts in rows.items():
        letter = ALPHABETS[alphabet]
        starts.sort(key=lambda start: -len(start[0]))
        begin = "|".join(re.escape(one) for one, _ in starts)
        runs = "|".join(re.escape(one) + (letter + f"{{{least}}}" if least else letter) for one, least in starts)
        end = {"only": f"(?!{letter})", "upper": f"{letter}*(?![a-z])", "uuid": ""}
        tail = end.get(flag) or end.get(alphabet, letter.replace("]", "=]*") if alphabet == "any" else letter + "*")
        check = _has_digit_after(re.compile(f"(?:{begin})".encode())) if flag == "digit" else None
        yield _shape(
            alphabet,
            "^" + "|".join(one for one, _ in starts),
            f"{_W}(?:{runs}){tail if alphabet != 'uuid' else ''}",
            check,
        )


TOKENS: tuple[Shape, ...] = tuple(_formats()) + tuple(
    _shape(kind, needles[1:] if needles[0] == "*" else "^" + needles, pattern, check[0] if check else None)
    for kind, needles, pattern, *check in (
        ("gocardless, lob", "live_|test_", _W + r"(?:live|test)_(?:pub_)?[A-Za-z0-9_-]{30,}", _has_digit),
        ("yandex", "t1.", _W + r"t1\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]{60,}"),
        ("slack", "xox", _W + r"xox[abceoprs](?:\.xox[abeoprs])?-[A-Za-z0-9-]{12,}"),
        ("sk key", "sk-", _W + r"sk-(?=[\w-]{0,60}[A-Z0-9])[A-Za-z0-9_-]{16,}"),
        ("sendgrid", "SG.", _W + r"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"),
        ("mailchimp", "*-us", _W + r"[0-9a-f]{32}-us\d{1,2}(?!\d)"),
        ("discord", "MD|MT|Mj|Mz|ND|NT|Nj|Nz|OD|OT|Oj|Oz", _W + r"[MNO][DTjz][A-Za-z0-9_-]{22,24}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,}"),
        ("square", "sq0", _W + r"sq0[a-z]{3}-[0-9A-Za-z_-]{20,}"),
        ("facebook", "EAA", _W + r"EAA[A-Za-z][A-Za-z0-9_-]{60,}"),
        ("twitter", "AAAAAAAAAAAAAAAA", _W + r"A{18,}[A-Za-z0-9%]{20,}"),
        ("vault", "s.", _W + r"s\.(?=[A-Za-z]*\d)[A-Za-z0-9]{24}(?!\w)"),
        ("terraform", "*.atlasv1.", _W + r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{40,}"),
        ("notion", "secret_|ntn_", _W + r"(?:secret|ntn)_(?=[A-Za-z]*\d)[A-Za-z0-9]{30,}"),
        ("langsmith", "lsv2_|ls__", _W + r"(?:lsv2_\w{20,}|ls__[0-9a-f]{32})"),
        ("circleci", "CCIPAT_|CCIPRJ_", _W + r"CCIP(?:AT|RJ)_[A-Za-z0-9]{16,}_[0-9a-f]{32,}"),
        ("airtable", "pat|key", _W + r"(?:pat[A-Za-z0-9]{14}\.[0-9a-f]{40,}|key(?=[A-Za-z]{0,13}\d)(?=\w{0,13}[A-Z])[A-Za-z0-9]{14}(?!\w))"),
        ("dropbox", "sl.", _W + r"sl\.(?:u\.)?(?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{40,}"),
        ("twitch stream", "live_", _W + r"live_\d{6,}_[A-Za-z0-9]{20,}"),
        ("postman", "PMAK-", _W + r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}"),
        ("1password", "ops_eyJ|A3-", _W + r"(?:ops_eyJ[A-Za-z0-9+/_-]{40,}=*|A3-[A-Z0-9]{6}-(?:[A-Z0-9]{5,11}-?){4,6})"),
        ("resend, posthog, prefect", "re_|phx_|phc_|pnu_|pnb_|rdme_|nyk_|tfp_|wandb_v1_",
         _W + r"(?:re|ph[xc]|pn[ub]|rdme|nyk|tfp|wandb_v1)_[A-Za-z0-9_-]{24,}", _has_digit),
        ("hubspot", "pat-", _W + r"pat-(?:na|eu|ap)\d-" + _UUID),
        ("dynatrace", "dt0", _W + r"dt0[a-z]\d\d\.[A-Z0-9]{24}\.[A-Z0-9]{60,}"),
        ("azure ad", "*Q~", _W + r"[A-Za-z0-9_~.]{3}\dQ~[A-Za-z0-9_~.-]{31,34}"),
        ("azure devops", "*AZDO", _W + r"[A-Za-z0-9]{70,}AZDO[A-Za-z0-9]{4}"),
        ("azure registry", "*+ACR", r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{42}\+ACR[A-Za-z0-9]{6}"),
        ("azure refresh token", "0.A|1.A", _W + r"[01]\.A[\w-]{50,}+(?:\.\d)?\.Ag[\w-]{200,}"),
        ("adobe", "p8e-", _W + r"p8e-[A-Za-z0-9]{32}"),
        ("adyen", "AQE", _W + r"AQE[A-Za-z0-9+/]{40,200}={0,2}-[A-Za-z0-9+/=]{30,}"),
        ("authress", "sc_|ext_|scauth_|authress_", _W + r"(?:sc|ext|scauth|authress)_[A-Za-z0-9]{5,30}\.[A-Za-z0-9]{4,6}\.acc[_-][a-z0-9-]{10,32}\.[A-Za-z0-9+/_=-]{30,}"),
        ("clickup", "pk_", _W + r"pk_\d{6,10}_[0-9A-Z]{32}"),
        ("defined networking", "dnkey-", _W + r"dnkey-[A-Za-z0-9_]{20,30}={0,2}-[A-Za-z0-9=_-]{40,}"),
        ("grafana", "eyJrIjoi", _W + r"eyJrIjoi[A-Za-z0-9]{60,}"),
        ("new relic license", "*FFFFNRAL", _W + r"[0-9a-fx]{32,40}FFFFNRAL"),
        ("maxmind", "*_mmk", _W + r"[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk"),
        ("harness", "pat.|sat.", _W + r"[ps]at\.[A-Za-z0-9_-]{22}\.[0-9a-f]{24}\.[A-Za-z0-9]{20}"),
        ("storyblok", "*tt-", _W + r"[0-9A-Za-z]{22}tt-\d{4,}-[A-Za-z0-9_-]{20}"),
        ("telnyx", "KEY0", _W + r"KEY0[0-9A-Z]{30,}_\w{20,}"),
        ("vendor prefix", "key_|pat_|ops_|secret_|token_|co_|pul_",
         _W + r"(?:key|pat|ops|secret|token|co|pul)_(?=[A-Za-z]*\d)(?=[A-Za-z0-9]*[A-Z])[A-Za-z0-9]{20,}"),
        ("okta", "00", _W + r"00[A-Z][A-Za-z0-9_-]{39}(?![\w-])|" + _W + r"00[A-Za-z0-9_-][A-Z][A-Za-z0-9_-]{38}(?![\w-])"),
        ("jwt", "eyJ|pk.eyJ|sk.eyJ", r"(?<![A-Za-z0-9])(?:[ps]k\.)?eyJ[A-Za-z0-9_-]{13,}+(?:\.[A-Za-z0-9_-]{6,}(?:\.[A-Za-z0-9_-]*)?)?", _has_dot),
        ("bitcoin, encrypted", "6P", _W + r"6P[RYn][1-9A-HJ-NP-Za-km-z]{55}(?![A-Za-z0-9])"),
        ("lightning macaroon", "0201036c6e64", _W + r"0201036c6e64[0-9a-f]{40,}"),
        ("age plugin", "AGE-PLUGIN-", _W + r"AGE-PLUGIN-\w+-1[0-9A-Z]{20,}"),
        ("bitcoin", "xprv|yprv|zprv|tprv", _W + r"[xyzt]prv[1-9A-HJ-NP-Za-km-z]{90,}"),
        ("bitcoin", "5H|5J|5K|Kw|Kx|Ky|Kz|L1|L2|L3|L4|L5", _W + r"(?:5[HJK]|K[w-z]|L[1-5])[1-9A-HJ-NP-Za-km-z]{49,50}(?![A-Za-z0-9])", _has_checksum),
        ("private key body", "MII|MIG|MHc|MC4|b3B",
         _W + r"(?:MII[A-Za-z0-9+/]{1,4}IBA(?:AK|DA)|MI(?:GH|GE|G2)AgEAM|MHcCAQEE|MIGkAgEBBD|MC4CAQAwBQYDK2V|b3BlbnNzaC1rZXktdj)"
         r"[A-Za-z0-9+/]{8,}+={0,2}(?:(?:\s|\\n?){1,8}[A-Za-z0-9+/=]{16,76}+)*+"),
    )
)  # fmt: skip
"""Tokens in one run of at least `RUN` letters, digits, `_`, `-`, `.`, `~`, `+` and `/`."""

RUN = 16
"""Shortest run of token characters that is checked, in bytes."""

BASE64 = re.compile(rb"(?<![A-Za-z0-9+_-])[A-Za-z0-9+/_-]{20,}={0,2}")

ENCODED = frozenset(
    b64encode(needle[:3]) for shape in TOKENS for needle in shape.needles if shape.anchored and len(needle) > 2
) | {b"eyJ", b"LS0t"}
"""First characters in base64 of tokens, of an object of JSON, and of a key in PEM."""

_VALUE = (
    r"(?:\\++[\"']((?:[^\n\"\\]++|\\++(?![\"']))*+)"  # JSON in JSON
    r"|\"((?:[^\"\\\n]|\\.)*)|'((?:[^'\\\n]|\\.)*)|`([^`\n]*)"
    r"|([^\s\"'`,;&<>\\{}()\[\]|][^\s\"'`,;&<>\\]*))"
)
_WEBHOOKS = (
    r"hooks\.slack\.com/(?:services|workflows|triggers)|discord(?:app)?\.com/api/webhooks|[\w.-]*webhook\.office\.com"
    r"|hooks\.zapier\.com/hooks/catch|[\w-]+\.tines\.com/webhook|events\.pagerduty\.com/integration"
)
_IN_QUERY_ENDS = (
    "sig signature x-amz-credential token key code auth sid session sessionid session_id clientid client_id code_verifier password"
    " passwd pwd secret"
).split()
_IN_QUERY = (
    r"sig|signature|x-amz-signature|x-amz-credential|x-amz-security-token|[\w-]*token|[\w-]*key|code|auth|sid|session|code_verifier"
    r"|(?:session|client)_?id|[\w-]*password|passwd|pwd|[\w-]*secret"
)
_FLAGS = r"oauth2-bearer|password|passwd|pass|passphrase|token|api-?key|secret|auth-?key|access-?key|secret-?key|private-?key|pin|otp|pw|setcookie|account-key|shared-key|master-key|encryption-key"


def _is_value_given(match: re.Match[bytes], text: bytes) -> bool:
    start, end = match.span(match.lastindex or 0)
    return not is_placeholder(text[start:end])


_FOREIGN_WORDS = (
    (
        "passwort kennwort contraseña contrasena clave senha wachtwoord hasło haslo heslo geslo parola lösenord lösenordet passord"
        " adgangskode salasana jelszó password пароль mật_khẩu mot_de_passe"
    )
    .replace(" ", "|")
    .replace("_", " ")
    .split("|")
)
"""Words for passwords before a verb, in the languages with blanks between words."""

_DIRECTIVES = "password passwd passphrase passwort kennwort bindpw rootpw psk secret community".split()
_CONNECTS = (
    "connect basicauth basic_auth networkcredential getconnection pdo passwordauthentication .auth credential credentials"
).split()
_QUOTE = r"(?:\\*[\"'`])?"
_NAMED = r"(?:name|key|field|header|variable|property|param|setting)"
_SET = r"(?:\bset(?:x|env|var)?|\bconfig(?: set)?|\bput|#define) [ \t]{0,3}"


def _is_named(match: re.Match[bytes], text: bytes) -> bool:
    """Whether the name beside a value, in the first group, is that of a secret, and the value is one."""
    return _is_value_given(match, text) and is_secret_name(
        text[slice(*match.span(1))].strip().decode("utf-8", "replace")
    )


def _is_named_and_random(match: re.Match[bytes], text: bytes) -> bool:
    return _is_named(match, text) and _has_entropy(match, text)


def _is_named_after(match: re.Match[bytes], text: bytes) -> bool:
    """Whether the name that follows a value is that of a secret."""
    name = _NAME_AFTER.match(text, match.end())
    return name is not None and is_secret_name(name[1].decode("utf-8", "replace")) and _is_value_given(match, text)


def _is_secret_tag(match: re.Match[bytes], text: bytes) -> bool:
    """Whether an attribute `value` or `content` belongs to an element of a password, or with the name of a secret."""
    tag = text[slice(*match.span())]
    names = _NAME_IN_TAG.findall(tag)
    return _is_value_given(match, text) and any(is_secret_name(name.decode("utf-8", "replace")) for name in names)


def _is_random_value(match: re.Match[bytes], text: bytes) -> bool:
    return _is_value_given(match, text) and _has_entropy(match, text)


def _is_mixed(match: re.Match[bytes], text: bytes) -> bool:
    """Whether a value has letters and digits, as passwords have and words do not."""
    value = text[slice(*match.span(match.lastindex or 0))].partition(b"/")[0]
    return (
        len(value) > 4
        and _DIGIT.search(value) is not None
        and _LETTER.search(value) is not None
        and not is_placeholder(value)
        and _NO_PASSWORD.fullmatch(value) is None
    )


def _is_directive(match: re.Match[bytes], text: bytes) -> bool:
    """Whether what follows a word for passwords at the beginning or the end of a line is one."""
    value = text[slice(*match.span(1))]
    before = text[max(0, match.start() - 24) : match.start()]
    return (
        _is_mixed(match, text)
        and (len(value) > 7 or value != value.lower())
        and (_BEGINS_LINE.search(before) is not None or _LINE_END.match(text, match.end()) is not None)
    )


def _is_opaque_value(match: re.Match[bytes], text: bytes) -> bool:
    """Whether a part of a path is a key, neither a word nor the id of something."""
    value = text[slice(*match.span(1))]
    return _has_entropy(match, text) and _ID.fullmatch(value) is None


def _is_set(match: re.Match[bytes], text: bytes) -> bool:
    """Whether a call sets a password, and what it is given is one."""
    return _is_random_value(match, text) and _SETS.search(text[max(0, match.end(1) - 48) : match.end(1)]) is not None


def _is_code(match: re.Match[bytes], text: bytes) -> bool:
    """Whether a number is a code that proves who somebody is."""
    return _PROVES.search(text[max(0, match.start() - 24) : match.start()]) is not None


_SETS = re.compile(rb"(?i:set|with)_?[A-Za-z_]{3,30}$|(?<![A-Za-z_])(?i:password|passwd|secret)$")
_PROVES = re.compile(
    rb"(?i:verification|security|confirmation|2fa|mfa|login|authentication|one-time|sms|einmal|secret)[ -]?(?i:pass)?$"
)
_LETTER = re.compile(rb"[A-Za-z]")
_BEGINS_LINE = re.compile(rb"(?:\A|\n)[ \t]{0,16}\Z")
_LINE_END = re.compile(rb"\\*[\"']?[ \t]{0,4}(?:[\n;\"']|\Z)")
_NO_PASSWORD = re.compile(
    rb"(?i:(?:hmac-?)?(?:sha|md|oauth|argon|base|pbkdf|aes|utf|bcrypt|scrypt|http|tls|ssl|win|x|v)-?\d[\w.-]*|[\w-]+:\d+|[\w-]+\.[a-z]{1,5}\d?)"
)
"""Names of algorithms, ports and files."""
_ID = re.compile(rf"{_UUID}|[0-9a-f]{{40}}|[0-9a-f]{{64}}|\d+".encode())
_PORT = re.compile(rb"\d{1,5}/")
_NAME_AFTER = re.compile(
    rf"\s{{0,4}},?\s{{0,24}}{_QUOTE}(?i:{_NAMED}){_QUOTE}\s{{0,4}}[:=]\s{{0,4}}{_QUOTE}([\w .-]{{2,64}})".encode()
)
_NAME_IN_TAG = re.compile(rb"(?i:name|key|id|type|property)\s{0,4}=\s{0,4}\\*[\"']?([\w.:-]{2,64})")

_HEX = [f"{first}{second}" for first in "0abcdef" for second in "0abcdef"]
_PROGRAMS = tuple(
    (programs.split(), needles, pattern, beside)
    for programs, needles, pattern, *beside in (
        ("mysql mysqldump mysqladmin mysqlimport mariadb 7z 7za 7zr unrar rar", " -p", r"-p\\*['\"]?([^\s'\"\\|;&-][^\s'\"\\|;&]*)", "mysql|mariadb|0z|rar"),
        ("mongo mongosh mongodump mongorestore sshpass psexec", " -p", r"-p {0,4}\\*['\"]?([^\s'\"\\|;&-][^\s'\"\\|;&]*)", "mongo|sshpass|psexec"),
        ("docker podman helm nerdctl buildah skopeo oras az oc", " -p", r"login\b[^\n|;&]{0,200}? -p[ =]{1,4}\\*['\"]?([^\s'\"\\|;&]+)", "login"),
        ("redis valkey", " -a| --pass", r"(?:-a|--pass)[ =]{1,4}\\*['\"]?([^\s'\"\\|;&]+)", "redis|valkey"),
        ("zip unzip sqlcmd bcp tsql ipmitool mosquitto", " -p", r"-P[ =]{0,4}\\*['\"]?(?![./])([^\s'\"\\|;&-][^\s'\"\\|;&]*)", "zip|sqlcmd|bcp|tsql|ipmitool|mosquitto"),
        ("ldapsearch ldapmodify ldapadd ldapdelete ldapwhoami ldappasswd", "^ldap", r"-[wsa][ =]{1,4}\\*['\"]?([^\s'\"\\|;&]+)"),
        ("keytool jarsigner apksigner", "storepass|-keypass", r"-(?:storepass|keypass|srcstorepass|deststorepass)[ =]{1,4}\\*['\"]?([^\s'\"\\|;&]+)"),
        ("schtasks", "^schtasks", r"/rp {1,4}\\*['\"]?([^\s'\"\\|;&]+)"),
        ("net", " /user", r"use +\S{1,80} +\S{1,80} +([^\s/*][^\s/]*) +/user", "net"),
        ("net", " user ", r"user +[\w.-]{1,80} +([^\s/*][^\s/]*)(?: +/|\s*\Z)", "net"),
        ("smbclient rpcclient winexe smbmap net", " -u", r"-U {0,4}\\*['\"]?[\w.\\-]{1,80}%([^\s'\"\\]+)", "%"),
        ("openssl", "^openssl", r"-K {1,4}([0-9A-Fa-f]{16,})"),
        ("htpasswd", "^htpasswd", r"(?:-(?=\w{0,4}n)\w{1,5}|-\w{0,4}b\w{0,4} +\S{1,80}) +\S{1,80} +\\*['\"]?([^\s'\"\\]+)"),
        ("rabbitmqctl", "^rabbitmqctl", r"(?:add_user|change_password|authenticate_user) +[\w.@-]{1,80} +\\*['\"]?([^\s'\"\\]+)"),
        ("wpa_passphrase", "^wpa_passphrase", r"\S{1,80} +\\*['\"]?([^\s'\"\\]+)"),
        ("rclone", "^rclone", r"obscure +\\*['\"]?([^\s'\"\\]+)"),
        ("mc", " set ", r"alias +set +\S{1,80} +\S{1,200} +\S{1,128} +\\*['\"]?([^\s'\"\\]+)", "alias"),
        ("openssl", "^openssl", r"-k {1,4}\\*['\"]?([^\s'\"\\|;&-][^\s'\"\\|;&]*)"),
        ("ssh-keygen", "^ssh-keygen", r"-[NP] {0,4}\\*['\"]?([^\s'\"\\|;&-][^\s'\"\\|;&]*)"),
        ("snmpwalk snmpget snmpset snmpbulkwalk snmptrap", "^snmp", r"-[AX] {0,4}\\*['\"]?([^\s'\"\\|;&-][^\s'\"\\|;&]*)"),
        ("lftp", "^lftp", r"-u {0,4}\\*['\"]?[\w.@-]{1,80},([^\s'\"\\]+)"),
        ("db2", " using ", r"user +[\w.-]{1,80} +using +\\*['\"]?([^\s'\"\\]+)", "db0"),
        ("secretsdump wmiexec smbexec psexec atexec dcomexec mssqlclient getuserspns getnpusers", "@",
         r"[^\s'\"\\]{1,60}/[\w.-]{1,60}:\\*['\"]?([^\s@'\"\\]+)\\*['\"]?@", "exec|secretsdump|mssqlclient|getuserspns|getnpusers"),
        ("sqlplus", "^sqlplus", r"[\w.-]{1,80}/([^\s@/'\"\\]+)@"),
        ("nmcli", "^nmcli", r"password +\\*['\"]?([^\s'\"\\]+)"),
        ("poetry composer", "http-basic", r"http-basic\.\S{1,80} +\S{1,80} +([^\s'\"\\]+)"),
        ("curl", "^curl", r"-u {0,4}\\*['\"]?[\w.@-]{1,80}:([^\s'\"\\]+)", " -u"),
        ("curl", "^curl", r"(?:--cert|-E) +[\w./-]{1,120}:([^\s'\"\\/]+)", " --cert| -e"),
        ("http https httpie xh", " -a | --auth ", r"(?:-a|--auth) +\\*['\"]?[\w.@-]{1,80}:([^\s'\"\\]+)", "http|xh"),
        ("kubectl oc", "--from-literal", r"secret\b[^\n|;&]{0,300}?--from-literal[= ]\\*['\"]?[\w.-]{1,80}=([^\s'\"\\]+)"),
        ("ngrok wandb vault", "^ngrok|wandb|vault", r"(?:authtoken|login) +\\*['\"]?([\w.-]{16,})"),
        ("gh", " set ", r"secret +set [^\n|;&]{0,100}?(?:--body|-b)[ =]{1,4}\\*['\"]?([^\s'\"\\]+)", "secret"),
    )
)  # fmt: skip
"""Programs, needles, the flag or place of their password, and what their command has beside."""

STRUCTURES = tuple(
    _shape(kind, needles, pattern, *check)
    for kind, needles, pattern, *check in cast("tuple[tuple[Any, ...], ...]", (
        ("private key", "private key|static key v0",
         r"-{4,5} ?BEGIN [A-Za-z0-9 ]*(?:PRIVATE KEY(?: BLOCK)?|Static key V\d) ?-{4,5}[\s\S]*?(?:-{4,5} ?END[^-]*-{4,5}|\Z)"),
        ("private key cut", "private key",
         r"(?<![A-Za-z0-9+/=\\])((?:[A-Za-z0-9+/=]{16,76}(?:\s|\\n?){1,4}){1,80})-----END [A-Z0-9 ]*PRIVATE KEY"),
        ("putty key", "^putty-user-key-file-", r"PuTTY-User-Key-File-\d[\s\S]*?(?:Private-MAC:\s*[0-9a-f]+|\Z)"),
        ("header", "^authorization",
         r"(?#folded)authorization(?:\\*['\"])?\]?\s*[:=,]\s*(?:\\*[\"'])?(?:f\\*['\"])?([^\s\r\n'\",;}\\][^\r\n'\",;}\\]*)",
         lambda match, text: is_header_value(text[slice(*match.span(1))])),
        ("cookie", "^cookie|set-cookie|setcookie",
         r"(?#folded)(?<![a-z])(?:set-?)?cookies?(?:\\*['\"])?\s*[:=]\s*(?:\\*[\"'])?([^\s=\r\n'\"}\\]{0,256}=[^\r\n'\"}\\]*)"),
        ("session cookie", "^sess=|session=|sessid=|sess_id=|sessionid=|session_id=|samlresponse=|sid=",
         r"(?#folded)(?:sess(?:ion)?(?:_?id)?|samlresponse|(?<![a-z])sid)=([a-z0-9%._:~+/-]{8,})", _has_entropy),
        ("bearer", "^bearer|basic|digest|negotiate|token ",
         r"(?#folded)(?<![a-z])(?:(?:bearer|basic|digest|negotiate)\s+|token +)([a-z0-9+/._~=-]{8,})", _has_entropy),
        ("credentials in a URL", "^://", r"://[^\s/@'\":]*:([^\s/'\"@]*(?:@[^\s/'\"@.]*)*)@", _is_value_given, "@"),
        ("password with a slash in a URL", "^://", r"://[^\s/@'\":]{1,80}:([^\s'\"@:/]{1,80}/[^\s'\"@:]{0,80})@",
         lambda match, _: not _PORT.match(match[1]), "@"),
        ("user in a URL", "^://", r"://([A-Za-z0-9_-]{16,}):?@", None, "@"),
        ("jdbc", "^jdbc:", r"jdbc:\w{1,20}:\w{1,20}:[\w.-]{1,80}/([^\s@/'\"]+)@", _is_value_given),
        ("webhook", "hooks.slack.com/|/api/webhooks/|webhook.office.com/|hooks.zapier.com/|.tines.com/webhook/|events.pagerduty.com/integration/",
         rf"https?://(?:{_WEBHOOKS})/([^\s'\"<>\\]+)"),
        ("secret in a path", "/key/|/token/|/secret/|/apikey/|/api_key/|/api-key/",
         r"(?#folded)://[\w.:-]{1,120}/(?:[^\s'\"<>\\?#]{0,200}?/)??(?:key|token|secret|api[_-]?key)/([\w-]{20,})", _is_opaque_value),
        ("channel", "^/t/", r"/t/([a-z]{2}-[0-9a-f]{8}-[0-9a-f-]{27})"),
        ("hook", "^/hooks/", r"/hooks/([a-z0-9]{26})(?![a-z0-9])"),
        ("query", "|".join(f"{name}{equals}" for name in _IN_QUERY_ENDS for equals in ("=", "%0d")),
         rf"(?#folded)(?:[?&#]|%26|%3f)(?=[\w-]{{2,64}}+[=%])(?:{_IN_QUERY})(?:=|%3d)([^&\s'\"<>\\)\]]+)", _is_value_given),
        ("set command", "^set |setx |setenv |setvar |config |put |#define ",
         rf"(?#folded){_SET}(?:--?[\w-]{{1,30}}[ \t]{{1,4}}){{0,3}}\\*[\"']?([\w./:@-]{{2,80}})\\*[\"']?\s{{1,4}}\\*[\"']?([^\s\"'`|;&\\<>=(){{}}\[\],]{{6,}})", _is_named_and_random),
        ("flag", "-oauth0-bearer|-pass|-token|-api|-secret|-auth|-access|-private|-pin|-otp|-pw|-setcookie|-account-key|-shared-key|-master-key|-encryption-key",
         rf"(?#folded)-(?:(?<=[ \"'\[=(\n]-)|(?<=\A-))-?(?:[a-z]+-)?(?:{_FLAGS})(?:=|\s+){_VALUE}", _is_value_given),
        ("windows flag", "^/p:|/pass:|/password:", r"(?#folded)(?<=\s)/p(?:ass(?:word)?)?:\\*['\"]?([^\s'\"\\]+)", _is_value_given),
        ("user flag", "^-u|--user|--proxy-user", r"(?:(?<=[ \"'])|\A)(?:-u|--user|--proxy-user|-U)[=\s]++\\*+['\"]?[^\s:'\"]+:([^\s'\"\\]+)", _is_value_given),
        *(
            (programs[0], needles, rf"(?<![\w.-])(?:{'|'.join(programs)})(?![A-Za-z0-9])[^\n|;&]{{0,300}}? {pattern}", _is_value_given, *beside)
            for programs, needles, pattern, beside in _PROGRAMS
        ),
        ("password by a pipe", "cryptsetup|kinit|smbpasswd|su -|secret create|chpasswd|--password-stdin|--stdin|--with-token|--passphrase-fd|secret put|secret set|sudo",
         r"\b(?:echo|printf)\s{1,4}(?:-[ne]{1,2}\s{1,4})?\\*['\"]?([^\s'\"|\\]+)(?:\\++n)?\\*+['\"]?\s{0,4}\\*+\|\s{0,4}(?:sudo\s+-S|(?:sudo\s+)?(?:chpasswd|cryptsetup|kinit|smbpasswd|su -|(?:docker|podman) secret create)|[\w./-]{1,40}\s[^\n|;]{0,200}?(?:--password-stdin|--stdin|--with-token|--passphrase-fd|secret (?:put|set)))",
         _is_value_given, "echo|printf"),
        ("password by a here string", "<<<",
         r"(?:--with-token|--password-stdin|chpasswd|passwd|sudo -S)[^\n<]{0,80}<<<\s{0,4}\\*['\"]?(?:[\w.@-]{1,80}:)?([^\s'\"\\]+)", _is_value_given),
        ("secure string", "^convertto-securestring", r"(?#folded)convertto-securestring\s+(?:-string\s+)?\\*[\"']([^\"'\n\\]+)", _is_value_given),
        ("redis", "^auth |requirepass |masterauth ",
         r"\b(?:AUTH +(?:[\w.-]{1,40} +(?=[^\s]{0,40}[0-9A-Z]))?|requirepass +|masterauth +)\\*[\"']?([^\s\"'\\]{5,})", _is_random_value),
        ("cisco", "^password 0 |secret 0 ", r"\b(?:password|secret) [057] ([^\s'\"\\]{8,})", _has_entropy),
        ("sql password", "identified|password",
         r"(?#folded)(?:identified\s+(?:with\s+\w+\s+)?by|(?:with|encrypted)\s+password|(?:role|user|login)\s+\S{1,80}\s+password|password\s+for\s+[^\s=]+(?:\s*+=)?)"
         r"\s+\\*'([^'\n\\]+)", None, "'"),
        ("sql login", "password", r"(?#folded)with\s+password\s{0,4}=\s{0,4}n?\\*'([^'\n\\]+)", None, "with", "'"),
        ("netrc", "^login", r"(?#folded)\blogin\s+\S+\s+(?:account\s+\S+\s+)?password\s+(\S+)", _is_value_given, "password"),
        ("netrc machine", "^machine", r"(?#folded)\bmachine\s+\S+\s[^\n]{0,200}?\bpassword\s+(\S+)", _is_value_given, "password"),
        ("pgpass", "^:00:|:000:|:0000:|:00000:|:*:",
         r":(?<=[\w.*-]:)(?:\d{2,5}|\*):[\w*-]+:[\w*.@-]+:([^\s:\"'\\/]+):?", _is_value_given),
        ("password hash", "^$0$|$0a$|$0b$|$0x$|$0y$|$y$|$gy$|$sha0$|$md0$|$apr0$|$argon0|$scrypt$|$pbkdf0|$p$|$h$|$krb0",
         r"\$(?:2[abxy]?|1|5|6|7|y|gy|sha1|md5|apr1|argon2(?:id|i|d)|scrypt|pbkdf2[\w-]*|P|H|krb5\w+)\$[A-Za-z0-9./+=,$*-]{16,}"),
        ("django hash", "^pbkdf0_sha|bcrypt_sha000$", r"(?:pbkdf2_sha\d+|bcrypt_sha256)\$[A-Za-z0-9./+=$-]{20,}"),
        ("scram", "^scram-sha-", r"SCRAM-SHA-\d+\$\d+:([A-Za-z0-9+/=]+\$[A-Za-z0-9+/=:]+)"),
        ("paypal", "^access_token$", r"access_token\$\w+\$[a-z0-9]{10,}\$[a-z0-9]{20,}"),
        ("ldap hash", "^{ssha|{sha|{md0|{smd0|{crypt", r"(?#folded)\{(?:s?sha(?:256|512)?|s?md5|crypt)\}([a-z0-9./+$=]{16,})"),
        ("mysql hash", "^" + "|".join("*" + digits for digits in _HEX), r"\*[0-9A-F]{40}(?![0-9A-Za-z])"),
        ("ntlm hash", ":::", r":(?:[0-9a-fA-F]{32}|\*{3,}):([0-9a-fA-F]{32}):::"),
        ("salesforce", "^00d", r"(?<![A-Za-z0-9])00D[A-Za-z0-9]{12}![A-Za-z0-9_.]{40,}", None, "!"),
        ("minisign", "^minisign encrypted secret key", r"minisign encrypted secret key(?:\s|\\n?){1,4}([A-Za-z0-9+/=]{40,})"),
        ("telegram", "0:aa", r"(?:(?<![\w.])|(?<=/bot))\d{7,12}:AA[A-Za-z0-9_-]{28,}"),
        ("firebase", ":apa00b", r"(?<![A-Za-z0-9_-])[A-Za-z0-9_-]{8,}+:APA91b[A-Za-z0-9_-]{80,}"),
        ("twitch", "^oauth:", r"\boauth:[a-z0-9]{30}\b"),
        ("google refresh", "^0//0", r"(?<!\w)1//0[0-9A-Za-z_-]{20,}"),
        ("asana", "^0/000000000000", r"(?<!\w)[12]/\d{12,}(?:/\d{12,})?:[0-9a-f]{32}"),
        ("fly", "^flyv0 ", r"FlyV1 ([A-Za-z0-9_+/=,-]{20,})"),
        ("odbc", "^pwd=|password=", r"(?#folded)(?:pwd|password)=([^;\"'\n=&]{1,80});", _is_value_given, ";"),
        ("element", "password|passwd|secret|token|apikey|api_key|keymaterial|psk",
         r"(?#folded)<(?:[\w.:-]*(?:password|passwd|secret|token|api_?key|keymaterial|psk))(?:\s[^<>]{0,200})?>(?:\s{0,40}<value>)?([^<>\n]+)</", _is_value_given, "</"),
        ("tag", "^<input|<meta|<add|<param|<property|<variable|<entry|<setting|<item",
         r"<(?i:input|meta|add|param|property|variable|entry|setting|item)\b[^<>]{0,300}?\s(?i:value|content)\s{0,4}=\s{0,4}\\*[\"']([^\"'<>\\]+)\\*[\"'][^<>]{0,300}",
         _is_secret_tag, "value|content"),
        ("named value", "val|content",
         rf"(?#folded){_NAMED}{_QUOTE}\s{{0,4}}[:=]\s{{0,4}}{_QUOTE}([\w .-]{{2,64}}){_QUOTE}\s{{0,4}},?(?:\s|\\n?){{0,24}}(?:-\s)?{_QUOTE}(?:values?|val|content){_QUOTE}\s{{0,4}}[:=]\s{{0,4}}(?:\[\s{{0,4}})?{_VALUE}",
         _is_named, _NAMED[3:-1], NAME_STEMS),
        ("value with a name", "^val|content",
         rf"(?#folded)(?<![a-z])(?:value|val|content){_QUOTE}\s{{0,4}}[:=]\s{{0,4}}\\*[\"']([^\"'\\\n]{{1,400}})\\*[\"']", _is_named_after, NAME_STEMS),
        ("pair", NAME_STEMS,
         r"(?#folded)[(\[]\s{0,4}\\*[\"']([\w.-]{2,64})\\*[\"'],\s{0,4}\\*[\"']([^\"'\\\n]{1,400})\\*[\"']\s{0,4}[)\]]", _is_named_and_random, "\",|',", "(|["),
        ("setter", "^password(|passwd(|passphrase(|secret(|token(|apikey(|api_key(|pwd(",
         r"(?#folded)(password|passwd|passphrase|secret|token|api_?key|pwd)\(\s{0,4}\\*[\"']([^\"'\\\n]{1,400})\\*[\"']\s{0,4}\)", _is_set),
        ("user and password", " -p| -w",
         r"(?: -[ul] |--user(?:name)?[ =])[^\s-]\S{0,79} (?:[^\n|;&]{0,120}? )??-[pPw](?: |(?=\\*['\"]))\\*['\"]?([^\s'\"\\|;&-][^\s'\"\\|;&]*)", _is_mixed, " -u| -l|--user"),
        ("directive", "^" + "|".join(f"{word}{blank}" for word in _DIRECTIVES for blank in (" ", "\t")),
         rf"(?#folded)(?:{'|'.join(_DIRECTIVES)})[ \t]{{1,8}}(?<!:)\\*[\"']?([^\s\"'\\,;(){{}}<>=]{{6,}})", _is_directive),
        ("sentinel", "^auth-pass ", r"auth-pass [\w.-]{1,60} ([^\s\"'\\]{5,})", _is_mixed),
        ("user line", "^user ", r"(?:(?<=\n)|(?<=\n )|\A)user {1,4}[\w.@-]{1,60} {1,4}([^\s\"'\\]{6,})(?=[ \t]{0,4}(?:[\n\"']|\Z))", _is_directive),
        ("chap", " * ", r"(?<![\w.@-])[\w.@-]{1,60}[ \t]{0,8} \* [ \t]{0,8}\\*[\"']?([^\s\"'\\*]{6,})\\*[\"']?[ \t]{1,8}\*(?=[ \t]{0,4}(?:[\n\"']|\Z))", _is_mixed),
        ("user with password", "^auth |]:0|creds are |credentials are ", r"(?:\b(?:auth|creds are|credentials are) {1,4}|\]:\d{2,5}[ \t]{1,8})[\w.@-]{1,80}:([^\s\"'\\:]{5,})", _is_mixed),
        ("redis user", "^setuser", r"(?i:setuser)\s{1,4}\S{1,80}[^\n]{0,100}?\s>([^\s\"'\\]{4,})", _is_value_given),
        ("wifi code", "^wifi:", r"(?i:wifi):[^\n\"']{0,100}?;P:([^;\n\"']+);", _is_value_given),
        ("registry value", "/v ", r"/v {1,4}([\w.-]{2,64}) [^\n|;&]{0,80}?/d {1,4}\\*[\"']?([^\s\"'\\]+)", _is_named, "/d "),
        ("sent line", "^send ", r"\bsend (?:-- )?\\*[\"']([^\"'\\\n]{5,})\\{1,4}[rn]", _is_mixed),
        ("backup codes", "^backup code|recovery code|scratch code",
         r"(?#folded)(?:backup|recovery|scratch) codes?\s{0,4}[:=]\s{0,4}([\w-]{6,20}(?:[ ,\t]{1,3}[\w-]{6,20}){0,20})", _has_entropy),
        ("login with a password", "^" + "|".join(f"{word}(" for word in _CONNECTS),
         rf"(?#folded)(?:{'|'.join(map(re.escape, _CONNECTS))})\((?:[^()\n]{{0,200}},\s{{0,4}})?\\*[\"'][^\"'\\\n]{{1,100}}\\*[\"']\s{{0,4}},\s{{0,4}}\\*[\"']([^\"'\\\n]{{5,200}})\\*[\"']\s{{0,4}}\)", _is_mixed),
        ("login of a library", "^auth|.login(",
         r"(?#folded)(?:\bauth\s{0,4}=\s{0,4}|\.login)\(\s{0,4}\\*[\"'][^\"'\\\n]{1,100}\\*[\"']\s{0,4},\s{0,4}\\*[\"']([^\"'\\\n]{1,400})\\*[\"']\s{0,4}\)", _is_value_given, "("),
        ("kubernetes secret", "^kind:",
         r"(?#folded)\bkind:\s{0,4}secret\b[\s\S]{0,300}?\b(?:string)?data:(?:\s|\\n?){1,20}([\w.-]{1,80}:[^\n\"\'\\]*(?:\n[ \t]{1,12}[\w.-]{1,80}:[^\n\"\'\\]*)*)"),
        ("password in prose", "^password |passphrase |passcode |pwd |pin |token |passwort |kennwort |mot de passe |senha ",
         r"(?#folded)(?:(?<=with )|(?<=using )|(?<=use )|(?<=by )|(?<=mit )|(?<=avec )|(?<=com )|(?<=the )|(?<=dem )|(?<=le )|(?<=la )|(?<=with a ))(?:password|passphrase|passcode|pwd|pin|token|passwort|kennwort|mot de passe|senha) \\*[\"']?([^\s\"'\\,;]{5,})", _is_random_value),
        ("password in foreign prose", "^" + "|".join(_FOREIGN_WORDS),
         rf"(?#folded)(?:{'|'.join(_FOREIGN_WORDS)})\s(?:ist|lautet|est|es|é|è|to|je|är|er|là|—|–|это)(?:\s|\s?:\s?)\\*(?:[\"'`]|„|“|«\s?)?([^\s\"'\\,;]{{5,}})", _is_random_value),
        ("credentials", "^credential|creds|login|user/pass|zugangsdaten|identifiants|credenciales|credenziali",
         r"(?#folded)(?:credentials?|creds|login|user/pass(?:word)?|zugangsdaten|identifiants|credenciales|credenziali)(?:\s{0,4}[:=]| are| with| as)\s{0,4}[\w.@-]{1,80}\s{0,4}[/|:]\s{0,4}([^\s\"'\\,;/]{5,80})(?=[\s\"'\\,;]|\Z)", _is_random_value),
        ("code", "^code is|code:|code :|code=|code =", r"(?#folded)code(?: is| ?[:=])\s{0,4}(\d[\d -]{3,9}\d)(?![\w.])", _is_code),
        ("social security number", "^000-00-0000", r"(?<![\d.-])(?!000|666|9)\d{3}-(?!00)\d{2}-(?!0000)\d{4}(?![\d-])"),
    ))
)  # fmt: skip
"""Secrets recognised by a header, a command, a URL or a delimiter; earlier ones may contain later ones."""

LONGEST_BARE = 256
"""Bytes by which a value without quotes is judged: a longer one would be read again for each label in it."""


class Label(NamedTuple):
    """Label before a value, such as `password:`.

    Attributes:
        words: every match begins with one of these, in lower case.
        pattern: expression over the text in lower case: label, separator, then the value in one of five groups.
        foreign: 0: English. 1: a word for a password in another language, 2: one for a key.
    """

    words: tuple[bytes, ...]
    pattern: re.Pattern[bytes]
    foreign: int = 0


_SUFFIX = r"(?:[_ -]?(?:key_base|key|value|hash|string|data|id|b64|base64|\d{1,2}))?"
_TYPE = r"(?:[ \t]{0,3}:[ \t]{0,3}&?[a-z][\w.|?]{0,24}(?:\[\w{1,20}\])?[ \t]{0,3}(?==[^=]))?"
"""A type between a name and its value: `token: &str = "..."`."""
_LINE = r"(?:\\*\n|\\+n)"
_LEAD = rf"(?:[|>][+-]?[ \t]{{0,4}}{_LINE}[ \t]{{0,32}}|{_LINE}[ \t]{{2,32}}|[&!][!\w]{{1,24}}[ \t]{{1,4}}|(?:\\*\"){{3}}(?:{_LINE} ?)?|[']['][']{_LINE}?)?"
"""Signs between a name and its value in YAML and others: the start of a block, an anchor, a tag, the next line."""
_WIDE = ("：", "＝", "是", "为", "為", "は", "는", "은")
"""Separators of Chinese, Japanese and Korean."""


def _label(words: Iterable[str], label: str, separators: str = "", foreign: int = 0) -> Label:
    return Label(
        tuple(word.encode() for word in words),
        re.compile(
            (
                rf"({label})(?:\\*[\"'`])?[\])]?{_TYPE}[ \t]{{0,8}}"
                rf"(=>|:=|\?=|::(?=[ \t])|[:=](?![:=])|(?<=[ \t])(?:is|was)(?=[ \t]){separators})[ \t]{{0,8}}{_LEAD}"
                + _VALUE.replace("]*))", f"]{{0,{LONGEST_BARE - 1}}}))")
            ).encode()
        ),
        foreign,
    )


_ENGLISH = {
    "pass": "(?:word|wd|phrase|code)?", "pwd": "", "secret": "", "token": "", "key": "", "credential": "s?",
    "otp": "", "pin": "", "cvv": "2?", "cvc": "2?", "ssn": "", "sig": "(?:nature)?", "jwt": "",
    "sess": "(?:ion)?[_ -]?(?:id|key)", "sid": "", "seed": "[_ -]?phrase", "recovery": "[_ -]phrase",
    "mnemonic": "", "auth": "", "dsn": "", "psk": "",
}  # fmt: skip
_HEADS = {"sess": ("sess", "session"), "seed": ("seed",), "recovery": ("recovery",)}
_TAILS = {"sess": ("id", "key"), "seed": ("phrase",), "recovery": ("phrase",)}
_FOREIGN = (
    "passwort|kennwort|zugangscode|mot de passe|code secret|contraseña|contrasena|clave|senha|palavra-passe|palavra passe"
    "|parola d'ordine|parola|wachtwoord|hasło|haslo|heslo|geslo|lozinka|jelszó|parolă|lösenord|losenord|passord|adgangskode"
    "|salasana|şifre|sifre|κωδικός|κωδικός πρόσβασης|пароль|парола|лозинка|סיסמה|ססמה|كلمة المرور|كلمة السر|رمز عبور"
    "|पासवर्ड|密码|密碼|口令|パスワード|暗証番号|비밀번호|암호|mật khẩu|รหัสผ่าน|kata sandi",
    "schlüssel|schluessel|clé|clé d'api|chave|chave de api|chiave|chiave api|clave de api|sleutel|klucz|klucz api|ключ|jeton|токен"
    "|密钥|密鑰|金鑰|令牌|トークン|秘密鍵|토큰|비밀키",
)
"""Words for passwords, and for keys and tokens, in the languages that people write."""


def _spellings(word: str) -> set[str]:
    """Return a word in lower case as bytes are: other letters than those of ASCII keep their case."""
    return {one.encode().lower().decode() for one in (word, word.capitalize(), word.upper())}


def _foreign_label(words: str, foreign: int) -> Label:
    spellings = sorted({one for word in words.split("|") for one in _spellings(word)}, key=lambda one: (-len(one), one))
    plain = "|".join(re.escape(one).replace("'", ".") for one in spellings if one.isascii() and one != "schluessel")
    other = "|".join(re.escape(one).replace("'", ".") for one in spellings if not one.isascii() or one == "schluessel")
    label = f"(?:{other}|(?<![a-z])(?:{plain}))" if plain else f"(?:{other})"
    return _label((one.partition("'")[0] for one in spellings), label, "".join(f"|{one}" for one in _WIDE), foreign)


LABELS = (
    *(
        _label(
            (word,) if " " not in more else [head + gap + tail for head in _HEADS[word] for gap in ("", "_", " ", "-") for tail in _TAILS[word]],
            word + more + _SUFFIX,
        )
        for word, more in _ENGLISH.items()
    ),
    *(_foreign_label(words, number) for number, words in enumerate(_FOREIGN, 1)),
)  # fmt: skip
"""Labels before values."""

MULTI_WORD = re.compile(rb"[a-z]+(?:[ ,]+[a-z]+){2,23}")
"""Words behind a label of a phrase."""

CARD = re.compile(rb"(?<![\w.-])\d(?:[ -]?\d){12,18}(?![\w.-]|\.\d)")
"""Thirteen to nineteen digits, as on a payment card; a secret if the check digit is valid."""

_CARD_NUMBER = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})|(?:5[1-5]|2[2-7])\d{14}|3[47]\d{13}|3[0689]\d{12}|35\d{14}|6[0-9]\d{14}(?:\d{1,3})?"
    r"|(?:50|5[6-8])\d{10,17}"
)

IBAN = re.compile(rb"(?<![A-Za-z0-9])([A-Z]{2})\d{2}(?:[ -]?[A-Z0-9]){11,30}")
"""Country, check digits and account; a secret if length and checksum are valid."""

EMAIL = re.compile(rb"(?<![\w.+%-])[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}")

IBAN_LENGTHS = {
    "AD": 24, "AE": 23, "AL": 28, "AT": 20, "AZ": 28, "BA": 20, "BE": 16, "BG": 22, "BH": 22, "BR": 29, "BY": 28,
    "CH": 21, "CR": 22, "CY": 28, "CZ": 24, "DE": 22, "DK": 18, "DO": 28, "EE": 20, "EG": 29, "ES": 24, "FI": 18,
    "FO": 18, "FR": 27, "GB": 22, "GE": 22, "GI": 23, "GL": 18, "GR": 27, "GT": 28, "HR": 21, "HU": 28, "IE": 22,
    "IL": 23, "IQ": 23, "IS": 26, "IT": 27, "JO": 30, "KW": 30, "KZ": 20, "LB": 28, "LC": 32, "LI": 21, "LT": 20,
    "LU": 20, "LV": 21, "LY": 25, "MC": 27, "MD": 24, "ME": 22, "MK": 19, "MR": 27, "MT": 31, "MU": 30, "NL": 18,
    "NO": 15, "PK": 24, "PL": 28, "PS": 29, "PT": 25, "QA": 29, "RO": 24, "RS": 22, "SA": 24, "SC": 31, "SE": 24,
    "SI": 19, "SK": 24, "SM": 27, "ST": 25, "SV": 28, "TL": 23, "TN": 24, "TR": 26, "UA": 29, "VA": 22, "VG": 24,
    "XK": 20,
}  # fmt: skip
"""Characters of an IBAN, by country."""

_WORDS = frozenset(
    b"""none null nil true false undefined nan str string int integer bytes bool boolean float any optional object
    number text unicode list dict tuple callable path secretstr self this required optional invalid wrong missing
    expired empty not incorrect unknown set unset valid correct used needed stored a an the too in of on at to for from
    with only already always never still now here there present absent available unavailable provided given your my
    their our its it that which what where when how if or and as is was be been being same different new old default
    mandatory allowed denied weak strong short long secure insecure safe compromised being public private read ok
    changeme placeholder example redacted hidden masked omitted removed filtered char varchar blob uuid enum type
    const let var function return await async void final static readonly input output hash hashed encrypted plain
    value values name names field fields found gone lost bad good raise throw continue break else print yes no ok""".split()
)
"""Values that are not secrets: types, constants, and words of sentences about secrets."""

REST = re.compile(rb"[^\s\"'`,;&<>\\]*")
"""What follows the judged part of a value without quotes."""

_CALL = re.compile(rb"[A-Za-z_]\w*(?:\.\w+)*[(\[]")
_ENDS_LINE = re.compile(rb"[ \t]{0,8}(?:[\n\"'\\`]|\Z)")
_VERSION = re.compile(rb"\d+(?:\.\d+)+")
_REST_OF_LINE = re.compile(rb"[^\n\"'\\]*")
_PLACEHOLDER = re.compile(
    rb"\$\w+|\$\{.*|\$\(.*|\{\{?.*|%\w+%|<.*|\.\.\.+|[*xX\xe2\x80\xa2#_-]+|%[sdr]|\[redacted.*|\(.*|\[.*|@\w+|[-+*/|&!?.,:;=~^{}()\[\]]*",
    re.DOTALL,
)
_CODE = re.compile(rb"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
_ENV = re.compile(rb"(?<![A-Z0-9_])(?:(?<![a-z])[A-Z]|[A-Z0-9_][0-9_]*+[A-Z])[A-Z0-9_]*+$")
_IDENTIFIER = re.compile(rb"[a-z_]+")
_KEY_BEFORE = re.compile(
    rb"(?:api|access|private|account|master|secret|sign(?:ing)?|encryption|license|ssh|shared|session|deploy|storage"
    rb"|subscription|consumer|client|admin|write|auth|hmac|aes|rsa|service|app|application|integration|ingest|project)"
    rb"[_ -]?$"
)
_PHRASES = frozenset(
    {b"pass", b"passphrase", b"password", b"mnemonic", b"seed phrase", b"seed_phrase", b"recovery phrase"}
)
_NUMBERS = frozenset({b"otp", b"pin", b"cvv", b"cvc", b"cvv2", b"cvc2", b"ssn"})
_STRONG = (b"pass", b"pwd", b"secret", b"credential", b"mnemonic", b"seed", b"recovery")


def is_placeholder(value: bytes) -> bool:
    """Whether a value is a placeholder: a variable, a mask, a type, a word about secrets."""
    return _PLACEHOLDER.fullmatch(value) is not None or value.strip(b".,:!?)]}").lower() in _WORDS


def is_header_value(value: bytes) -> bool:
    """Whether the value of an authorization header contains more than its scheme or a variable."""
    secret = value.split()[-1] if value.split() else b""
    return not is_placeholder(secret) and not (_CODE.fullmatch(secret) and secret.lower() == secret)


def labelled_secret(  # noqa: C901, PLR0912 - a classifier is a list of early returns
    match: re.Match[bytes], text: bytes, foreign: int = 0
) -> tuple[int, int] | None:
    """Place of the secret in a match of one of `LABELS`; None where the value is none. `text` is in its own case."""
    label, separator = match.group(1).rstrip(b"0123456789"), match.group(2)
    group = match.lastindex or 0
    start, end = match.span(group)
    value = text[start:end]
    bare = group == 7
    before = text[max(0, match.start() - 40) : match.end(1)]
    env = _ENV.search(before) is not None and (len(label) > 3 or text[match.start() - 1 : match.start()] == b"_")
    if not value or is_placeholder(value) or (bare and text[end : end + 1] in {b"(", b"["}):
        return None
    if bare and _is_call(value):
        return None
    lead = text[match.end(2) : start]
    if bare and b"\n" in lead:
        if lead.strip()[:1] in {b"|", b">"}:
            end = _REST_OF_LINE.match(text, end).end()  # type: ignore[union-attr] # it matches anything
        elif not lead.strip() and not (
            separator == b":"
            and len(value) > 5
            and value[-1:] != b":"
            and looks_random(value)
            and _ENDS_LINE.match(text, end)
        ):
            return None  # the line after `password:` is not its value
    if foreign:
        fits = len(value) >= 16 and _is_opaque(value) if foreign > 1 else len(value) >= 5 and looks_random(value)
        return (start, _without_stop(text, start, end) if bare else end) if fits else None
    in_word = text[match.start() - 1 : match.start()].isalpha() and match.start() > 0
    camel = text[match.start() : match.start() + 1].isupper()
    if (
        in_word
        and not camel
        and not label.startswith((b"pass", b"secret", b"token", b"pwd", b"key", b"session", b"sessid"))
    ):
        return None  # `compass`, `topping`, `inside`
    if in_word and label == b"pass" and not env:
        return None
    if label in _NUMBERS:
        number = sum(map(_is_digit, value)) >= 3 and len(value) <= 16 and not _VERSION.fullmatch(value)
        return (start, end) if number else None
    if label == b"pass" and len(value) < 6 and value.isdigit():
        return None  # `pass: 12` counts tests
    if label == b"secret" and separator == b":" and text[match.start() - 1 : match.start()] == b":":
        return None  # `arn:aws:secretsmanager:...:secret:name`
    strong = label.startswith(_STRONG)
    if separator in {b"is", b"was"} and bare:
        if value.endswith((b"ed", b"ing", b"ly")) or not (strong or looks_random(value)):
            return None
        return start, _without_stop(text, start, end)
    if env:
        return start, end
    if label in {b"key", b"auth", b"sig", b"signature", b"dsn", b"sid"} or label.startswith(b"sess"):
        if label == b"key" and _KEY_BEFORE.search(before[: -len(label)].lower()) is None:
            return (start, end) if len(value) >= 20 and _is_opaque(value) else None
        return (
            (start, end) if len(value) >= 8 and looks_random(value) and not _is_expression(value, bare=bare) else None
        )
    if _is_expression(value, bare=bare):
        return None
    if label in _PHRASES and separator == b":" and bare:
        words = MULTI_WORD.match(text, start)
        if words is not None and words.end() > end and label != b"password":
            return start, words.end()
    if not strong and bare and (_IDENTIFIER.fullmatch(value) or (value.isdigit() and len(value) < 6)):
        return None
    if not strong and not bare and (len(value) < 6 or (b" " in value and not looks_random(value))):
        return None
    return start, _without_stop(text, start, end) if bare else end


def _is_digit(byte: int) -> bool:
    return 48 <= byte <= 57


def _is_opaque(value: bytes) -> bool:
    """Whether a value is one word of letters and digits, like a key in base64 or hex."""
    return value.replace(b"+", b"").replace(b"/", b"").rstrip(b"=").isalnum() and looks_random(value)


def _is_expression(value: bytes, *, bare: bool) -> bool:
    """Whether an unquoted value is program code: `self.token`, `user_password`."""
    if not bare:
        return False
    if _CODE.fullmatch(value):
        return not looks_random(value.rpartition(b".")[2])
    return _IDENTIFIER.fullmatch(value) is not None and any(
        core in value for core in (b"pass", b"token", b"secret", b"key")
    )


def _is_call(value: bytes) -> bool:
    """Whether an unquoted value begins like a call or an index: `tokenizer.next()`, `os.environ[`."""
    call = _CALL.match(value)
    if call is None:
        return False
    return not looks_random(call.group()) or b"." in call.group() or value[-1:] in {b")", b"]", b"(", b"["}


def _without_stop(text: bytes, start: int, end: int) -> int:
    """Return the end of a value without the full stop of its sentence."""
    return end - 1 if end - start > 1 and text[end - 1 : end] in {b".", b":", b"!"} else end


def is_card(digits: str) -> bool:
    """Whether this is a card number: a network's prefix and length, and a valid check digit (Luhn)."""
    plain = "".join(filter(str.isdecimal, digits))
    if _CARD_NUMBER.fullmatch(plain) is None:
        return False
    numbers = list(map(int, plain))
    doubled = [sum(divmod(2 * number, 10)) for number in numbers[-2::-2]]
    return (sum(numbers[-1::-2]) + sum(doubled)) % 10 == 0 and len(set(numbers)) > 1


def iban_length(text: str) -> int:
    """Return the length of the valid IBAN at the start of `text`, spaces included; 0 without one."""
    wanted = IBAN_LENGTHS.get(text[:2], 0)
    plain = ""
    for position, character in enumerate(text):
        plain += "" if character in " -" else character
        if len(plain) == wanted:
            number = int("".join(str(int(one, 36)) for one in plain[4:] + plain[:4]))
            return position + 1 if number % 97 == 1 else 0
    return 0
