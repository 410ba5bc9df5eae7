"""What secrets look like: names that hold them, and shapes that give them away by themselves.

Two kinds of knowledge. A name (`password`, `Authorization`) makes whatever stands behind it a secret, in an object, a
header, a query, a command line or a sentence. A shape (a token with its vendor's prefix, a private key, a card number
whose digits add up) is a secret wherever it stands. Both err on the side of hiding.
"""

from __future__ import annotations

import re

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

_PATTERNS = {
    "private key": r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----[\s\S]*?(?:-----END[^-]*-----|\Z)",
    "putty key": r"PuTTY-User-Key-File-\d[\s\S]*?Private-MAC:\s*[0-9a-f]+",
    "age key": r"\bAGE-SECRET-KEY-1[0-9A-Z]{20,}",
    "header": r"(?i)\b(?:proxy-)?authorization['\"]?\s*[:=]\s*['\"]?[^\r\n'\",;}]+",
    "cookie": r"(?i)\b(?:set-)?cookie['\"]?\s*[:=]\s*['\"]?[^\r\n'\"}]+",
    "bearer": r"(?i)\b(?:bearer|basic|digest|negotiate)\s+[A-Za-z0-9+/._~=-]{8,}",
    "credentials in a URL": r"(?<=://)[^\s/@'\"]*:[^\s/'\"]*(?=@)",
    "user in a URL": r"(?<=://)[A-Za-z0-9_-]{16,}(?=@)",
    "jwt": r"\beyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]{6,}(?:\.[A-Za-z0-9_-]*)?",
    "aws": r"\b(?:AKIA|ASIA|ABIA|ACCA|AROA|AIDA|AGPA|ANPA)[0-9A-Z]{12,}\b",
    "github": r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,})",
    "gitlab": r"\bgl(?:pat|dt|rt|cbt|ptt|ft|soat|agent|oas)-[A-Za-z0-9_-]{16,}",
    "slack": r"\bxox[abeoprs](?:\.xox[abeoprs])?-[A-Za-z0-9-]{10,}|\bxapp-\d-[A-Za-z0-9-]{10,}",
    "webhook": rf"https?://(?:{_WEBHOOKS})/[^\s'\"]+",
    "stripe": r"\b(?:sk|rk|pk|whsec)_(?:live|test)?_?[A-Za-z0-9]{16,}",
    "sk key": r"\bsk-(?:ant-|proj-|or-|svcacct-|admin-)?[A-Za-z0-9_-]{16,}",
    "google": r"\bAIza[0-9A-Za-z_-]{30,}|\b(?:ya29\.|GOCSPX-)[0-9A-Za-z_-]{16,}|\b1//0[0-9A-Za-z_-]{20,}",
    "npm": r"\bnpm_[A-Za-z0-9]{20,}",
    "pypi": r"\bpypi-[A-Za-z0-9_-]{16,}",
    "hugging face": r"\b(?:hf|api_org)_[A-Za-z0-9]{20,}",
    "sendgrid": r"\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}",
    "twilio": r"\b(?:SK|AC)[0-9a-f]{32}\b",
    "mailgun": r"\bkey-[0-9a-f]{32}\b",
    "mailchimp": r"\b[0-9a-f]{32}-us\d{1,2}\b",
    "telegram": r"\b\d{8,10}:[A-Za-z0-9_-]{30,}",
    "discord": r"\b[MNO][A-Za-z0-9_-]{23,25}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,}",
    "square": r"\bsq0[a-z]{3}-[0-9A-Za-z_-]{20,}|\bEAAA[A-Za-z0-9_-]{30,}",
    "shopify": r"\bshp(?:at|ca|pa|ss)_[0-9a-fA-F]{20,}",
    "digitalocean": r"\bdo[por]_v1_[0-9a-f]{32,}",
    "vault": r"\bhv[sbr]\.[A-Za-z0-9_-]{16,}",
    "databricks": r"\bdapi[0-9a-f]{32}(?:-\d)?",
    "terraform": r"\b[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_-]{40,}",
    "atlassian": r"\bATATT3[A-Za-z0-9_=-]{20,}",
    "vendor prefix": rf"\b(?:{_VENDORS})[_.-][A-Za-z0-9_-]{{20,}}",
    "okta": r"\b00[A-Za-z0-9_-]{40}\b",
    "azure": r"(?i)\b(?:AccountKey|SharedAccessKey|SharedSecretValue)\s*=\s*[A-Za-z0-9+/=]{16,}",
    "query": rf"(?i)[?&](?:{_IN_QUERY})=[^&\s'\"]+",
    "flag": rf"(?i)(?<!\w)--?(?:{_FLAGS})(?:=|\s+)(?:{_QUOTED}|[^\s'\"]+)",
    "user flag": r"(?<!\w)(?:-u|--user)\s+['\"]?[^\s:'\"]+:[^\s'\"]+",
    "mysql flag": r"\b(?:mysql|mysqldump|mysqladmin|mariadb|sshpass)\b[^\n|;&]*?\s-p\s*\S+",
    "labelled": rf"(?i)(?<!\w)(?:{_LABELS})['\"]?\s*(?:[:=]>?|\bis\b|\bwas\b)\s*(?:{_QUOTED}|[^\s,;&'\"}}\])]+)",
    "social security number": r"\b\d{3}-\d{2}-\d{4}\b",
    "iban": r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,7}(?: ?[A-Z0-9]{1,4})?\b",
}
SHAPES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern)) for kind, pattern in _PATTERNS.items()
)
"""Kind and pattern of what is a secret wherever it stands; the first ones may hold later ones inside."""

CARD = re.compile(r"(?<![\d.])\d(?:[ -]?\d){12,18}(?![\d.])")
"""Thirteen to nineteen digits, as on a payment card; a secret where the check digit is right."""

HINT = re.compile(
    r"(?i)[A-Za-z0-9_-]{16}|://|pass|pwd|secret|token|key|auth|cookie|bearer|basic|digest|jwt|otp|pin|cv[vc]|ssn|sig|cred"
    r"|seed|session|private|-u\s|--user|\d[\d -]{10}|-p"
)
"""A cheap look first: text without any of these holds none of the above."""


def is_card(digits: str) -> bool:
    """Whether the check digit of a card number is right (Luhn)."""
    numbers = [int(digit) for digit in digits if digit.isdecimal()]
    doubled = [sum(divmod(2 * number, 10)) for number in numbers[-2::-2]]
    return (sum(numbers[-1::-2]) + sum(doubled)) % 10 == 0 and len(set(numbers)) > 1
