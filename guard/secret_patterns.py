"""What secrets look like: names that hold them, and shapes that give them away by themselves.

Two kinds of knowledge. A name (`password`, `Authorization`) makes whatever stands behind it a secret, in an object, a
header, a query, a command line or a sentence. A shape (a token with its vendor's prefix, a private key, a card number
whose digits add up) is a secret wherever it stands. Both err on the side of hiding.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

NAME = re.compile(
    r"""pass(?:wd|word|phrase|code|wort)$|(?:^|[_-])pass$|pwd$|secret|token(?!s$|_?count|ize|_?type|_?limit|_?usage)|api[_-]?key|apikey
    |access[_-]?key|private[_-]?key|secret[_-]?key|signing[_-]?key|encryption[_-]?key|account[_-]?key|shared[_-]?key
    |master[_-]?key|license[_-]?key|auth(?:orization|entication)?$|auth[_-]?(?:header|key|data)|credential|cookie
    |session[_-]?(?:key|token)|bearer|jwt$|(?:^|[_-])(?:otp|totp|mfa|pin|cvv2?|cvc2?|ssn|iban|pan)(?:$|[_-])
    |card[_-]?(?:number|no|num)|credit[_-]?card|cc[_-]?(?:number|num)|connection[_-]?string|conn[_-]?str|(?:^|[_-])dsn$
    |webhook[_-]?(?:url|secret)|(?:^|[_-])(?:sig|signature|hmac|salt|seed)$|seed[_-]?phrase|mnemonic|recovery[_-]?code
    |kubeconfig|keystore|pfx$|x-amz-security-token|client[_-]?assertion|refresh""",
    re.IGNORECASE | re.VERBOSE,
)
"""Names whose value is secret, whatever it looks like."""

_LABELS = (
    r"pass(?:word|wd|phrase|code|wort)?|pwd|secret(?:[_ -]?(?:access)?[_ -]?key)?|(?:[\w-]*[_-])?token"
    r"|(?:[\w-]*[_-])?api[_ -]?key|access[_ -]?key(?:[_ -]?id)?|private[_ -]?key|account[_ -]?key"
    r"|shared[_ -]?access[_ -]?key|client[_ -]?secret|credentials?|otp|pin|cvv|cvc|ssn|sig|signature"
    r"|session[_ -]?(?:id|key)|seed phrase|jwt|[A-Z][A-Z0-9_]*(?:_KEY|_TOKEN|_SECRET|_PASSWORD|_PASSWD|_PWD)"
)
_QUOTED = r"""'[^'\n]+'|"[^"\n]+\""""
_VENDORS = (
    r"lin_api|glsa|glc|figd|dckr_pat|nrk|NRAK|NRII|PMAK|pul|rubygems|sntrys|sbp|fo1|vercel|pscale_(?:tkn|pw|oauth)"
    r"|dp\.(?:pt|st|ct)|ops|whsec|key|pat|tskey|r8|gsk|xai|pplx|co|nvapi|secret"
)
_WEBHOOKS = r"hooks\.slack\.com/(?:services|workflows)|discord(?:app)?\.com/api/webhooks|[\w.-]*webhook\.office\.com"
_FLAGS = "password|passwd|pass|token|api-?key|secret|auth-?token|access-?key|client-?secret|pin"
_IN_QUERY = (
    "sig|signature|x-amz-signature|x-amz-credential|x-amz-security-token|access_token|token|key|apikey|api_key|code|auth"
    "|password|secret"
)
_LABELS_END = "pass|word|wd|phrase|code|wort|secret|token|key|id|credentials?|otp|pin|cv[vc]|ssn|sig|signature|jwt"
"""How labels end."""


class Shape(NamedTuple):
    """What is a secret wherever it stands.

    Attributes:
        kind: what it is.
        pattern: finds it; may cost a millisecond on a long text.
        needles: every secret of the kind holds one of these. Looked for in the text as it is, or in lower case where
            the pattern ignores case: a text without any is done with in microseconds.
        any_case: the pattern ignores case.
        look: a quicker pattern, for text in lower case, that is found wherever `pattern` is.
    """

    kind: str
    pattern: re.Pattern[str]
    needles: tuple[str, ...]
    any_case: bool
    look: re.Pattern[str] | None = None


def _shape(kind: str, needles: str, pattern: str, look: str = "") -> Shape:
    return Shape(
        kind,
        re.compile(pattern),
        tuple(needles.split("|")),
        pattern.startswith("(?i)"),
        re.compile(look) if look else None,
    )


# A word boundary in front may stand behind the first character, as in `S(?<!\w.)`: a pattern that begins with
# characters skips to them, one that begins with `\b` is tried everywhere.
SHAPES = (
    _shape(
        "private key",
        "PRIVATE KEY",
        r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----[\s\S]*?(?:-----END[^-]*-----|\Z)",
    ),
    _shape("putty key", "PuTTY-User-Key-File-", r"PuTTY-User-Key-File-\d[\s\S]*?Private-MAC:\s*[0-9a-f]+"),
    _shape("age key", "AGE-SECRET-KEY-1", r"\bAGE-SECRET-KEY-1[0-9A-Z]{20,}"),
    _shape("header", "authorization", r"(?i)\b(?:proxy-)?authorization['\"]?\s*[:=]\s*['\"]?[^\r\n'\",;}]+"),
    _shape("cookie", "cookie", r"(?i)\b(?:set-)?cookie['\"]?\s*[:=]\s*['\"]?[^\r\n'\"}]+"),
    _shape(
        "bearer",
        "bearer|basic|digest|negotiate",
        r"(?i)\b(?:bearer|basic|digest|negotiate)\s+[A-Za-z0-9+/._~=-]{8,}",
    ),
    _shape("credentials in a URL", "://", r"(?<=://)[^\s/@'\"]*:[^\s/'\"]*(?=@)"),
    _shape("user in a URL", "://", r"(?<=://)[A-Za-z0-9_-]{16,}(?=@)"),
    _shape("jwt", "eyJ", r"\beyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]{6,}(?:\.[A-Za-z0-9_-]*)?"),
    _shape(
        "aws",
        "AKIA|ASIA|ABIA|ACCA|AROA|AIDA|AGPA|ANPA",
        r"\b(?:AKIA|ASIA|ABIA|ACCA|AROA|AIDA|AGPA|ANPA)[0-9A-Z]{12,}\b",
    ),
    _shape(
        "github",
        "ghp_|gho_|ghu_|ghs_|ghr_|github_pat_",
        r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,})",
    ),
    _shape(
        "gitlab",
        "glpat-|gldt-|glrt-|glcbt-|glptt-|glft-|glsoat-|glagent-|gloas-",
        r"\bgl(?:pat|dt|rt|cbt|ptt|ft|soat|agent|oas)-[A-Za-z0-9_-]{16,}",
    ),
    _shape("slack", "xox|xapp-", r"\bxox[abeoprs](?:\.xox[abeoprs])?-[A-Za-z0-9-]{10,}|\bxapp-\d-[A-Za-z0-9-]{10,}"),
    _shape(
        "webhook",
        "hooks.slack.com/|discord.com/api/webhooks/|discordapp.com/api/webhooks/|webhook.office.com/",
        rf"https?://(?:{_WEBHOOKS})/[^\s'\"]+",
    ),
    _shape("stripe", "sk_|rk_|pk_|whsec_", r"\b(?:sk|rk|pk|whsec)_(?:live|test)?_?[A-Za-z0-9]{16,}"),
    _shape("sk key", "sk-", r"\bsk-(?:ant-|proj-|or-|svcacct-|admin-)?[A-Za-z0-9_-]{16,}"),
    _shape(
        "google",
        "AIza|ya29.|GOCSPX-|1//0",
        r"\bAIza[0-9A-Za-z_-]{30,}|\b(?:ya29\.|GOCSPX-)[0-9A-Za-z_-]{16,}|\b1//0[0-9A-Za-z_-]{20,}",
    ),
    _shape("npm", "npm_", r"\bnpm_[A-Za-z0-9]{20,}"),
    _shape("pypi", "pypi-", r"\bpypi-[A-Za-z0-9_-]{16,}"),
    _shape("hugging face", "hf_|api_org_", r"\b(?:hf|api_org)_[A-Za-z0-9]{20,}"),
    _shape("sendgrid", "SG.", r"\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"),
    _shape("twilio", "SK|AC", r"\b(?:SK|AC)[0-9a-f]{32}\b"),
    _shape("mailgun", "key-", r"\bkey-[0-9a-f]{32}\b"),
    _shape("mailchimp", "-us", r"\b[0-9a-f]{32}-us\d{1,2}\b"),
    _shape("telegram", ":", r"\d(?<!\w.)\d{7,9}:[A-Za-z0-9_-]{30,}"),
    _shape("discord", ".", r"[MNO](?<!\w.)[A-Za-z0-9_-]{23,25}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,}"),
    _shape("square", "sq0|EAAA", r"\bsq0[a-z]{3}-[0-9A-Za-z_-]{20,}|\bEAAA[A-Za-z0-9_-]{30,}"),
    _shape("shopify", "shpat_|shpca_|shppa_|shpss_", r"\bshp(?:at|ca|pa|ss)_[0-9a-fA-F]{20,}"),
    _shape("digitalocean", "_v1_", r"\bdo[por]_v1_[0-9a-f]{32,}"),
    _shape("vault", "hvs.|hvb.|hvr.", r"\bhv[sbr]\.[A-Za-z0-9_-]{16,}"),
    _shape("databricks", "dapi", r"\bdapi[0-9a-f]{32}(?:-\d)?"),
    _shape("terraform", ".atlasv1.", r"\b[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_-]{40,}"),
    _shape("atlassian", "ATATT3", r"\bATATT3[A-Za-z0-9_=-]{20,}"),
    _shape(
        "vendor prefix",
        "_|.|-",
        rf"\b(?:{_VENDORS})[_.-][A-Za-z0-9_-]{{20,}}",
        look=r"[_.-][a-z0-9_-]{20}",
    ),
    _shape("okta", "00", r"\b00[A-Za-z0-9_-]{40}\b"),
    _shape(
        "azure",
        "accountkey|sharedaccesskey|sharedsecretvalue",
        r"(?i)\b(?:AccountKey|SharedAccessKey|SharedSecretValue)\s*=\s*[A-Za-z0-9+/=]{16,}",
    ),
    _shape("query", "?|&", rf"(?i)[?&](?:{_IN_QUERY})=[^&\s'\"]+"),
    _shape(
        "flag",
        "-pass|-token|-api|-secret|-auth|-access|-client|-pin",
        rf"(?i)(?<!\w)--?(?:{_FLAGS})(?:=|\s+)(?:{_QUOTED}|[^\s'\"]+)",
    ),
    _shape("user flag", "-u", r"(?<!\w)(?:-u|--user)\s+['\"]?[^\s:'\"]+:[^\s'\"]+"),
    _shape(
        "mysql flag",
        "mysql|mariadb|sshpass",
        r"\b(?:mysql|mysqldump|mysqladmin|mariadb|sshpass)\b[^\n|;&]*?\s-p\s*\S+",
    ),
    _shape(
        "labelled",
        "pass|pwd|secret|token|key|credential|otp|pin|cvv|cvc|ssn|sig|session|seed phrase|jwt",
        rf"(?i)(?<!\w)(?:{_LABELS})['\"]?\s*(?:[:=]>?|\bis\b|\bwas\b)\s*(?:{_QUOTED}|[^\s,;&'\"}}\])]+)",
        look=rf"(?:{_LABELS_END})['\"]?\s*(?:[:=]|is|was)",
    ),
    _shape("social security number", "-", r"\d(?<!\w.)\d\d-\d{2}-\d{4}\b"),
    _shape("iban", "", r"[A-Z](?<!\w.)[A-Z]\d{2}(?: ?[A-Z0-9]{4}){3,7}(?: ?[A-Z0-9]{1,4})?\b"),
)
"""The first ones may hold later ones inside."""

CARD = re.compile(r"\d(?<![\d.].)(?:[ -]?\d){12,18}(?![\d.])")
"""Thirteen to nineteen digits, as on a payment card; a secret where the check digit is right."""


def shapes_for(text: str) -> Iterator[Shape]:
    """The shapes that may be in a text: all that are in it, and few others."""
    lower = text.lower() if text.isascii() else text.casefold().replace("\u0131", "i")  # what patterns take for equal
    for shape in SHAPES:
        read = lower if shape.any_case else text
        for needle in shape.needles:
            if needle in read:
                if shape.look is None or shape.look.search(lower):
                    yield shape
                break


def is_card(digits: str) -> bool:
    """Whether the check digit of a card number is right (Luhn)."""
    numbers = [int(digit) for digit in digits if digit.isdecimal()]
    doubled = [sum(divmod(2 * number, 10)) for number in numbers[-2::-2]]
    return (sum(numbers[-1::-2]) + sum(doubled)) % 10 == 0 and len(set(numbers)) > 1
