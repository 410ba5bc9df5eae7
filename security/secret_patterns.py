"""Tables of secrets: names of fields that hold them, and shapes of their values.

A name (`password`, `PGPASSWORD`, `x-api-key`) makes the value after it a secret. A shape (a token with its vendor's
prefix, a private key, a card number with a valid check digit) is a secret wherever it occurs. The shapes follow the
formats that the vendors document; gitleaks and trufflehog have lists of the same formats. See docs/guard.md, Privacy.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

NAME = re.compile(
    r"""pass(?:wd|word|phrase|code|wort)(?:[_-]?(?:hash|value))?$|(?:^|[_-])(?:pass|pw)$|pwd$|secret
    |token(?!s$|_?count|ize|_?type|_?limit|_?usage)|api[_-]?key|apikey
    |access[_-]?key|private[_-]?key|secret[_-]?key|signing[_-]?key|encryption[_-]?key|account[_-]?key|shared[_-]?key
    |master[_-]?key|license[_-]?key|auth(?:orization|entication)?$|auth[_-]?(?:header|key|data)|credential|cookie
    |session[_-]?(?:key|token)|(?:php|j|asp)[_.-]?sess(?:ion)?[_-]?id|(?:^|[_.-])sid$|bearer|jwt$
    |(?:^|[_-])(?:otp|totp|mfa|pin|cvv2?|cvc2?|ssn|iban|pan)(?:$|[_-])
    |card[_-]?(?:number|no|num)|credit[_-]?card|cc[_-]?(?:number|num)|connection[_-]?string|conn[_-]?str|(?:^|[_-])dsn$
    |webhook[_-]?(?:url|secret)|(?:^|[_-])(?:sig|signature|hmac|salt|seed)$|seed[_-]?phrase|mnemonic|recovery[_-]?code
    |kubeconfig|keystore|pfx$|x-amz-security-token|client[_-]?assertion|(?-i:^[A-Z0-9_]+_KEY$)""",
    re.IGNORECASE | re.VERBOSE,
)
"""Names whose value is always secret."""

SESSION_NAME = re.compile(r"(?:^|[_-])sess(?:ion)?[_-]?id$", re.IGNORECASE)
"""Names of session ids; their value is secret if it is long enough not to be guessed."""


class Shape(NamedTuple):
    """Pattern that is a secret wherever it occurs.

    Attributes:
        kind: kind of secret.
        pattern: expression over UTF-8; the first matching group is the secret, or the whole match without one.
        needles: every match contains one of these; texts without any are not searched.
        read: what the needles are looked for in: the text as it is, with ASCII letters in lower case (the pattern, too),
            or with every digit as `0` and every capital letter as `A`.
        gates: the text in lower case contains one of these, too; few and shared, so they are searched first.
        check: decides about a match; gets the match and the text in its original case. None: every match is a secret.
    """

    kind: str
    pattern: re.Pattern[bytes]
    needles: tuple[bytes, ...]
    read: str = "raw"
    gates: tuple[str, ...] = ()
    check: Callable[[re.Match[bytes], bytes], bool] | None = None


def _has_entropy(match: re.Match[bytes], text: bytes) -> bool:
    """Whether the secret mixes letters with digits or cases, unlike prose."""
    start, end = match.span(match.lastindex or 0)
    return looks_random(text[start:end])


def looks_random(value: bytes) -> bool:
    """Whether a word mixes letters with digits, or lower with upper case after its first letter."""
    tail = value[1:]
    return any(48 <= byte <= 57 for byte in value) or (tail != tail.lower() and value != value.upper())


def _shape(kind: str, needles: str, pattern: str, check: Callable[..., bool] | None = None, gates: str = "") -> Shape:
    read = pattern[3 : pattern.index(")")] if pattern.startswith("(?#") else "raw"
    compiled = re.compile(pattern.removeprefix(f"(?#{read})").encode())
    return Shape(
        kind, compiled, tuple(needles.encode().split(b"|")), read, tuple(gates.replace("_", " ").split("|")), check
    )


def _has_digit(match: re.Match[bytes], _: bytes) -> bool:
    """Whether a token contains a digit, beside those of its prefix."""
    return _DIGIT.search(match.group().removeprefix(b"e2b_").removeprefix(b"wandb_v1_")) is not None


def _has_dot(match: re.Match[bytes], _: bytes) -> bool:
    return b"." in match.group().removeprefix(b"sk.").removeprefix(b"pk.")


_DIGIT = re.compile(rb"[0-9]")
_UUID = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
_W = r"(?<![A-Za-z0-9])"
"""No letter or digit before; an underscore is allowed: `MY_ghp_...`."""

TOKENS: tuple[Shape, ...] = tuple(
    _shape(kind, needles, pattern, check[0] if check else None)
    for kind, needles, pattern, *check in (
        ("aws", "AKIA|ASIA|ABIA|ACCA|AROA|AIDA|AGPA|ANPA",
         _W + r"(?:AKIA|ASIA|ABIA|ACCA|AROA|AIDA|AGPA|ANPA)[0-9A-Z]{12,}(?![a-z])"),
        ("aws bedrock", "ABSK|bedrock-api-key-", _W + r"(?:ABSK[A-Za-z0-9+/]{40,}=*|bedrock-api-key-[A-Za-z0-9+/]{16,})"),
        ("aws mws", "amzn.mws.", _W + r"amzn\.mws\." + _UUID),
        ("alibaba", "LTAI", _W + r"LTAI[A-Za-z0-9]{17,}"),
        ("tencent", "AKID", _W + r"AKID[A-Za-z0-9]{28,}"),
        ("yandex", "AQVN|t1.", _W + r"(?:AQVN[A-Za-z0-9_-]{30,}|t1\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]{60,})"),
        ("github", "ghp_|gho_|ghu_|ghs_|ghr_|github_pat_",
         _W + r"(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,})"),
        ("gitlab", "glpat-|gldt-|glrt-|glcbt-|glptt-|glft-|glsoat-|glagent-|gloas-|glimt-|glffct-|glwt-|GR1348941",
         _W + r"(?:gl(?:pat|dt|rt|cbt|ptt|ft|soat|agent|oas|imt|ffct|wt)-[A-Za-z0-9_.-]{16,}|GR1348941[\w-]{16,})"),
        ("slack", "xox|xapp-|xwfp-",
         _W + r"(?:xox[abceoprs](?:\.xox[abeoprs])?-[A-Za-z0-9-]{12,}|x(?:app-\d|wfp)-[A-Za-z0-9-]{12,})"),
        ("stripe", "sk_|rk_|pk_|whsec_", _W + r"(?:sk|rk|pk|whsec)_(?:live_|test_|prod_)?[A-Za-z0-9+/]{16,}=*"),
        ("sk key", "sk-", _W + r"sk-(?=[\w-]{0,60}[A-Z0-9])[A-Za-z0-9_-]{16,}"),
        ("langfuse", "pk-lf-", _W + r"pk-lf-" + _UUID),
        ("google", "AIza|ya29.|GOCSPX-|AQ.A",
         _W + r"(?:AIza[0-9A-Za-z_-]{30,}|(?:ya29\.|GOCSPX-|AQ\.A)[0-9A-Za-z_.-]{16,})"),
        ("npm", "npm_", _W + r"npm_[A-Za-z0-9]{20,}"),
        ("pypi", "pypi-", _W + r"pypi-[A-Za-z0-9_-]{16,}"),
        ("nuget", "oy2", _W + r"oy2[a-z0-9]{43}"),
        ("rubygems", "rubygems_", _W + r"rubygems_[0-9a-f]{32,}"),
        ("clojars", "CLOJARS_", _W + r"CLOJARS_[a-z0-9]{40,}"),
        ("hugging face", "hf_|api_org_", _W + r"(?:hf|api_org)_[A-Za-z0-9]{20,}"),
        ("sendgrid", "SG.", _W + r"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"),
        ("twilio", "SK|AC", _W + r"(?:SK|AC)[0-9a-f]{32}(?![0-9a-f])"),
        ("mailgun", "key-|pubkey-", _W + r"(?:pub)?key-[0-9a-f]{32}(?![0-9a-f])"),
        ("mailchimp", "-us", _W + r"[0-9a-f]{32}-us\d{1,2}(?!\d)"),
        ("brevo", "xkeysib-|xsmtpsib-", _W + r"x(?:key|smtp)sib-[0-9a-f]{40,}(?:-[A-Za-z0-9]+)?"),
        ("discord", "MD|MT|Mj|Mz|ND|NT|Nj|Nz|OD|OT|Oj|Oz", _W + r"[MNO][DTjz][A-Za-z0-9_-]{22,24}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,}"),
        ("square", "sq0|EAAA", _W + r"(?:sq0[a-z]{3}-[0-9A-Za-z_-]{20,}|EAAA[A-Za-z0-9_-]{30,})"),
        ("facebook", "EAA|IGQV", _W + r"(?:EAA[A-Za-z]|IGQV)[A-Za-z0-9_-]{60,}"),
        ("twitter", "AAAAAAAAAAAAAAAA", _W + r"A{18,}[A-Za-z0-9%]{20,}"),
        ("shopify", "shpat_|shpca_|shppa_|shpss_", _W + r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{20,}"),
        ("digitalocean", "dop_v1_|doo_v1_|dor_v1_", _W + r"do[opr]_v1_[0-9a-f]{32,}"),
        ("together", "tgp_v1_", _W + r"tgp_v1_[A-Za-z0-9_-]{30,}"),
        ("vault", "hvs.|hvb.|hvr.|s.", _W + r"(?:hv[sbr]\.[A-Za-z0-9_-]{16,}|s\.(?=[A-Za-z]*\d)[A-Za-z0-9]{24}(?!\w))"),
        ("databricks", "dapi", _W + r"dapi[0-9a-f]{32}(?:-\d)?"),
        ("terraform", ".atlasv1.", _W + r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{40,}"),
        ("atlassian", "ATATT3|ATCTT3|ATBB|ATTA",
         _W + r"(?:AT[AC]TT3[A-Za-z0-9_-]{20,}(?:=[A-Fa-f0-9]{8})?|ATBB[A-Za-z0-9]{28,}|ATTA[0-9a-zA-Z]{60,})"),
        ("notion", "secret_|ntn_", _W + r"(?:secret|ntn)_(?=[A-Za-z]*\d)[A-Za-z0-9]{30,}"),
        ("langsmith", "lsv2_|ls__", _W + r"(?:lsv2_(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{10}|lsv2_\w{20,}|ls__[0-9a-f]{32})"),
        ("pinecone", "pcsk_", _W + r"pcsk_[A-Za-z0-9_]{30,}"),
        ("circleci", "CCIPAT_|CCIPRJ_", _W + r"CCIP(?:AT|RJ)_[A-Za-z0-9]{16,}_[0-9a-f]{32,}"),
        ("netlify", "nfp_|nfc_|nfo_|nfb_|nfu_", _W + r"nf[pcobu]_[A-Za-z0-9]{30,}"),
        ("heroku", "HRKU-", _W + r"HRKU-[A-Za-z0-9_-]{30,}"),
        ("buildkite", "bkua_|bkat_|bkct_|bkaj_|bkpi_|bkpt_", _W + r"bk(?:ua|at|ct|aj|pi|pt)_[A-Za-z0-9_-]{20,}"),
        ("tavily", "tvly-", _W + r"tvly-[A-Za-z0-9_-]{16,}"),
        ("airtable", "pat|key", _W + r"(?:pat[A-Za-z0-9]{14}\.[0-9a-f]{40,}|key(?=[A-Za-z]{0,13}\d)(?=\w{0,13}[A-Z])[A-Za-z0-9]{14}(?!\w))"),
        ("dropbox", "sl.", _W + r"sl\.(?:u\.)?(?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{40,}"),
        ("fly", "fo1_|fm1r_|fm1a_|fm2_", _W + r"(?:fo1_[A-Za-z0-9_-]{20,}|fm(?:1r|1a|2)_[A-Za-z0-9+/]{20,}=*)"),
        ("twitch stream", "live_", _W + r"live_\d{6,}_[A-Za-z0-9]{20,}"),
        ("gocardless, lob", "live_|test_", _W + r"(?:live|test)_(?:pub_)?[A-Za-z0-9_-]{30,}", _has_digit),
        ("render", "rnd_", _W + r"rnd_[A-Za-z0-9]{20,}"),
        ("linear", "lin_api_|lin_oauth_", _W + r"lin_(?:api|oauth)_[A-Za-z0-9]{20,}"),
        ("grafana", "glsa_|glc_", _W + r"gl(?:sa|c)_[A-Za-z0-9_+/]{20,}"),
        ("figma", "figd_|figu_|figo_|figuh_|figor_|figdr_", _W + r"fig(?:d|u|o|uh|or|dr)_[A-Za-z0-9_-]{20,}"),
        ("docker", "dckr_", _W + r"dckr_[po]at_[A-Za-z0-9_-]{20,}"),
        ("new relic", "NRAK-|NRII-|NRJS-|NRRA-|NRAA-", _W + r"NR(?:AK|II|JS|RA|AA)-[A-Za-z0-9_-]{16,}"),
        ("postman", "PMAK-", _W + r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}"),
        ("pulumi", "pul-", _W + r"pul-[0-9a-f]{40}"),
        ("sentry", "sntrys_|sntryu_", _W + r"sntry[su]_[A-Za-z0-9_+/-]{20,}"),
        ("supabase", "sbp_|sb_secret_", _W + r"(?:sbp_[0-9a-f]{32,}|sb_secret_[A-Za-z0-9_-]{16,})"),
        ("vercel", "vercel_|vcp_|vck_|vci_|vca_|vcr_", _W + r"(?:vercel_\w{20,}|vc[pkiar]_[A-Za-z0-9]{20,})"),
        ("planetscale", "pscale_", _W + r"pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.-]{20,}"),
        ("doppler", "dp.", _W + r"dp\.(?:pt|st|ct|sa|scim|audit)\.[A-Za-z0-9_.-]{20,}"),
        ("1password", "ops_eyJ|A3-", _W + r"(?:ops_eyJ[A-Za-z0-9+/_-]{40,}=*|A3-[A-Z0-9]{6}-(?:[A-Z0-9]{5,11}-?){4,6})"),
        ("tailscale", "tskey-", _W + r"tskey-[A-Za-z0-9-]{16,}"),
        ("replicate", "r8_", _W + r"r8_[A-Za-z0-9]{20,}"),
        ("groq, xai, perplexity", "gsk_|xai-|pplx-|nvapi-|csk-|fw_|fc-|jina_|e2b_|bb_live_",
         _W + r"(?:gsk_|xai-|pplx-|nvapi-|csk-|fw_|fc-|jina_|e2b_|bb_live_)[A-Za-z0-9_-]{20,}", _has_digit),
        ("resend, posthog, prefect", "re_|phx_|phc_|pnu_|pnb_|rdme_|aio_|nyk_|tfp_|wandb_v1_",
         _W + r"(?:re|ph[xc]|pn[ub]|rdme|aio|nyk|tfp|wandb_v1)_(?=[A-Za-z0-9_.-]{24})[A-Za-z_-]*+(?:\d[A-Za-z0-9_.-]*+)?", _has_digit),
        ("sonar", "squ_|sqp_|sqa_", _W + r"sq[upa]_[0-9a-f]{40}"),
        ("mongodb", "mdb_sa_sk_", _W + r"mdb_sa_sk_[A-Za-z0-9_-]{30,}"),
        ("neon", "npg_|napi_", _W + r"(?:npg_[A-Za-z0-9]{12,}|napi_[a-z0-9]{50,})"),
        ("openshift", "sha256~", _W + r"sha256~[A-Za-z0-9_-]{40,}"),
        ("plaid", "access-", _W + r"access-(?:sandbox|development|production)-" + _UUID),
        ("hubspot", "pat-", _W + r"pat-(?:na|eu|ap)\d-" + _UUID),
        ("launchdarkly", "sdk-|api-|mob-", _W + r"(?:sdk|api|mob)-" + _UUID),
        ("shippo, duffel", "shippo_|duffel_", _W + r"(?:shippo|duffel)_(?:live|test)_[A-Za-z0-9_-]{30,}"),
        ("easypost", "EZAK|EZTK", _W + r"EZ[AT]K[A-Za-z0-9]{50,}"),
        ("flutterwave", "FLWSECK", _W + r"FLWSECK(?:_TEST|_LIVE)?-[A-Za-z0-9-]{12,}"),
        ("contentful", "CFPAT-", _W + r"CFPAT-[A-Za-z0-9_-]{40,}"),
        ("cloudflare", "v1.0-", _W + r"v1\.0-[0-9a-f]{24,}-[0-9a-f]{100,}"),
        ("dynatrace", "dt0", _W + r"dt0[a-z]\d\d\.[A-Z0-9]{24}\.[A-Z0-9]{60,}"),
        ("jfrog", "AKCp|cmVmd", _W + r"(?:AKCp[A-Za-z0-9]{60,}|cmVmd[A-Za-z0-9]{50,})"),
        ("azure ad", "Q~", _W + r"[A-Za-z0-9_~.]{3}\dQ~[A-Za-z0-9_~.-]{31,34}"),
        ("azure devops", "AZDO", _W + r"[A-Za-z0-9]{70,}AZDO[A-Za-z0-9]{4}"),
        ("adobe", "p8e-", _W + r"p8e-[A-Za-z0-9]{32}"),
        ("infracost, scalingo, frameio", "ico-|tk-us-|fio-u-",
         _W + r"(?:ico-[A-Za-z0-9]{32}|tk-us-[\w-]{48}|fio-u-[\w-]{60,})"),
        ("maxmind", "_mmk", _W + r"[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk"),
        ("harness", "pat.|sat.", _W + r"[ps]at\.[A-Za-z0-9_-]{22}\.[0-9a-f]{24}\.[A-Za-z0-9]{20}"),
        ("telnyx", "KEY0", _W + r"KEY0[0-9A-Z]{30,}_\w{20,}"),
        ("vendor prefix", "key_|pat_|ops_|secret_|whsec_|token_|co_|pul_",
         _W + r"(?:key|pat|ops|secret|token|co|pul)_(?=[A-Za-z]*\d)(?=[A-Za-z0-9]*[A-Z])[A-Za-z0-9]{20,}"),
        ("okta", "00", _W + r"00[A-Z][A-Za-z0-9_-]{39}(?![\w-])|" + _W + r"00[A-Za-z0-9_-][A-Z][A-Za-z0-9_-]{38}(?![\w-])"),
        ("jwt", "eyJ", r"(?<![A-Za-z0-9])(?:[ps]k\.)?eyJ[A-Za-z0-9_-]{6,}+(?:\.[A-Za-z0-9_-]{6,}(?:\.[A-Za-z0-9_-]*)?)?", _has_dot),
        ("age key", "AGE-SECRET-KEY-1|AGE-PLUGIN-", _W + r"AGE-(?:SECRET-KEY-1|PLUGIN-\w+-1)[0-9A-Z]{20,}"),
    )
)  # fmt: skip
"""Tokens in one run of at least `RUN` letters, digits, `_`, `-`, `.`, `~`, `+` and `/`."""

RUN = 16
"""Shortest run of token characters that is checked, in bytes."""

STARTS: dict[bytes, tuple[tuple[bytes, Shape], ...]] = {}
"""Tokens with their needle, by its first three bytes, for those that begin with a needle."""

INNER = tuple(shape for shape in TOKENS if not shape.needles[0][:1].isalnum() or shape.needles[0] in {b"Q~", b"AZDO"})
"""Tokens with their needle after the beginning."""

for _token in TOKENS:
    for _needle in () if _token in INNER else _token.needles:
        for _last in (b"",) if len(_needle) > 2 else (bytes([byte]) for byte in range(45, 127)):
            _start = (_needle + _last)[:3]
            STARTS[_start] = (*STARTS.get(_start, ()), (_needle, _token))

_VALUE = (
    r"(?:\\++[\"']((?:[^\n\"\\]++|\\++(?![\"']))*+)"  # JSON in JSON
    r"|\"((?:[^\"\\\n]|\\.)*)|'((?:[^'\\\n]|\\.)*)|`([^`\n]*)"
    r"|([^\s\"'`,;&<>\\{}()\[\]|][^\s\"'`,;&<>\\]*))"
)
_WEBHOOKS = (
    r"hooks\.slack\.com/(?:services|workflows|triggers)|discord(?:app)?\.com/api/webhooks|[\w.-]*webhook\.office\.com"
    r"|hooks\.zapier\.com/hooks/catch"
)
_IN_QUERY = (
    r"sig|signature|x-amz-signature|x-amz-credential|x-amz-security-token|[\w-]*token|[\w-]*key|code|auth|sid|session"
    r"|(?:session|client)_?id|[\w-]*password|passwd|pwd|[\w-]*secret"
)
_FLAGS = (
    r"password|passwd|pass|passphrase|token|api-?key|secret|auth-?key|access-?key|secret-?key|private-?key|pin|otp|pw"
)


def _is_value_given(match: re.Match[bytes], text: bytes) -> bool:
    start, end = match.span(match.lastindex or 0)
    return not is_placeholder(text[start:end])


STRUCTURES = tuple(
    _shape(kind, needles, pattern, check[0] if check else None, gates)
    for kind, gates, needles, pattern, *check in (
        ("private key", "-----begin", "PRIVATE KEY",
         r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----[\s\S]*?(?:-----END[^-]*-----|\Z)"),
        ("putty key", "putty-", "PuTTY-User-Key-File-", r"PuTTY-User-Key-File-\d[\s\S]*?(?:Private-MAC:\s*[0-9a-f]+|\Z)"),
        ("header", "authorization", "authorization",
         r"(?#folded)authorization(?:\\*['\"])?\]?\s*[:=,]\s*(?:\\*[\"'])?(?:f['\"])?([^\s\r\n'\",;}\\][^\r\n'\",;}\\]*)",
         lambda match, text: is_header_value(text[slice(*match.span(1))])),
        ("cookie", "cookie", "cookie",
         r"(?#folded)(?<![a-z])(?:set-)?cookies?(?:\\*['\"])?\s*[:=]\s*(?:\\*[\"'])?([^\s=\r\n'\"}\\]{0,256}=[^\r\n'\"}\\]*)"),
        ("session cookie", "=", "sess=|session=|sessid=|sess_id=|sessionid=|session_id=|sid=",
         r"(?#folded)(?:sess(?:ion)?(?:_?id)?|(?<![a-z])sid)=([a-z0-9%._:~+/-]{8,})", _has_entropy),
        ("bearer", "bearer|basic|digest|negotiate|token_", "bearer|basic|digest|negotiate|token ",
         r"(?#folded)(?<![a-z])(?:(?:bearer|basic|digest|negotiate)\s+|token +)([a-z0-9+/._~=-]{8,})", _has_entropy),
        ("credentials in a URL", "//", "@", r"://[^\s/@'\":]*:([^\s/'\"@]*(?:@[^\s/'\"@.]*)*)@", _is_value_given),
        ("user in a URL", "//", "@", r"://([A-Za-z0-9_-]{16,}):?@"),
        ("webhook", "//", "hooks.slack.com/|/api/webhooks/|webhook.office.com/|hooks.zapier.com/",
         rf"https?://(?:{_WEBHOOKS})/([^\s'\"<>\\]+)"),
        ("query", "?|&|%|#", "=|%3d", rf"(?#folded)(?:[?&#]|%26|%3f)(?:{_IN_QUERY})(?:=|%3d)([^&\s'\"<>\\)\]]+)", _is_value_given),
        ("flag", "_-|\"-|'-|[-|=-|(-", "-pass|-token|-api|-secret|-auth|-access|-private|-pin|-otp|-pw", rf"(?#folded)(?:(?<=[ \"'\[=(])|\A)--?(?:[a-z]+-)?(?:{_FLAGS})(?:=|\s+){_VALUE}", _is_value_given),
        ("user flag", "_-|\"-|'-", "-u|-U|--user|--proxy-user", r"(?:(?<=[ \"'])|\A)(?:-u|--user|--proxy-user|-U)[=\s]++\\*+['\"]?[^\s:'\"]+:([^\s'\"\\]+)", _is_value_given),
        ("mysql flag", "_-", "mysql|mariadb|sshpass|redis-cli|mongo",
         r"\b(?:mysql|mysqldump|mysqladmin|mariadb|sshpass|mongo|mongosh)\b[^\n|;&]{0,400}? -p\s?['\"]?([^\s'\"\\]+)"
         r"|\bredis-cli\b[^\n|;&]{0,400}? -a\s+['\"]?([^\s'\"\\]+)", _is_value_given),
        ("sql password", "identif|password", "identified|password",
         r"(?#folded)(?:identified\s+(?:with\s+\w+\s+)?by|(?:with|encrypted)\s+password|password\s+for\s+[^\s=]+(?:\s*+=)?)"
         r"\s+\\*'([^'\n\\]+)"),
        ("netrc", "password", "login", r"(?#folded)\blogin\s+\S+\s+(?:account\s+\S+\s+)?password\s+(\S+)", _is_value_given),
        ("netrc machine", "password", "machine", r"(?#folded)\bmachine\s+\S+\s[^\n]{0,200}?\bpassword\s+(\S+)", _is_value_given),
        ("pgpass", ":", ":00|:*:",
         r"(?#forms)(?<=[\w.*-]):(?:\d{2,5}|\*):[\w*-]+:[\w*.@-]+:([^\s:\"'\\/]+):?", _is_value_given),
        ("password hash", "$", "$", r"\$(?:2[abxy]?|1|5|6|7|y|gy|sha1|md5|apr1|argon2(?:id|i|d)|scrypt|pbkdf2[\w-]*|P|H)"
         r"\$[A-Za-z0-9./+=,$-]{16,}"),
        ("django hash", "$", "pbkdf2_sha|bcrypt_sha256$", r"(?:pbkdf2_sha\d+|bcrypt_sha256)\$[A-Za-z0-9./+=$-]{20,}"),
        ("telegram", ":a", ":AA", r"(?<![\w.])\d{7,12}:AA[A-Za-z0-9_-]{28,}"),
        ("firebase", ":a", ":APA91b", r"(?<![A-Za-z0-9_-])[A-Za-z0-9_-]{8,}+:APA91b[A-Za-z0-9_-]{80,}"),
        ("twitch", "oauth:", "oauth:", r"\boauth:[a-z0-9]{30}\b"),
        ("google refresh", "//", "1//0", r"(?<!\w)1//0[0-9A-Za-z_-]{20,}"),
        ("asana", "", "0/000000000000", r"(?#forms)(?<!\w)[12]/\d{12,}(?:/\d{12,})?:[0-9a-f]{32}"),
        ("fly", "flyv1", "FlyV1 ", r"FlyV1 ([A-Za-z0-9_+/=,-]{20,})"),
        ("odbc", ";", "pwd=|password=", r"(?#folded)(?:pwd|password)=([^;\"'\n=&]{1,80});", _is_value_given),
        ("element", "<", "<", r"(?#folded)<(?:[\w.:-]*(?:password|passwd|secret|token|api_?key))>([^<>\n]+)</", _is_value_given),
        ("social security number", "", "000-00-0000", r"(?#forms)(?<![\d.-])(?!000|666|9)\d{3}-(?!00)\d{2}-(?!0000)\d{4}(?![\d-])"),
    )
)  # fmt: skip
"""Secrets recognised by a header, a command, a URL or a delimiter; earlier ones may contain later ones."""

LONGEST_BARE = 256
"""Bytes by which a value without quotes is judged: a longer one would be read again for each label in it."""

LABELLED = tuple(
    (
        word.encode(),
        re.compile(
            (
                f"({word}{more})" + r"(?:[_ -]?(?:key|value|hash|string|id|b64|base64|\d{1,2}))?"
                r"(?:\\*[\"'`])?[\])]?[ \t]{0,8}(=>|:=|\?=|[:=](?![:=])|(?<=[ \t])(?:is|was)(?=[ \t]))[ \t]{0,8}" + _VALUE.replace("]*))", f"]{{0,{LONGEST_BARE - 1}}}))")
            ).encode()
        ),
    )
    for word, more in {
        "pass": "(?:word|wd|phrase|code|wort)?", "pwd": "", "secret": "", "token": "", "key": "", "credential": "s?",
        "otp": "", "pin": "", "cvv": "2?", "cvc": "2?", "ssn": "", "sig": "(?:nature)?", "jwt": "",
        "sess": "(?:ion)?[_ -]?(?:id|key)", "sid": "", "seed": "[_ -]?phrase", "recovery": "[_ -]phrase",
        "mnemonic": "", "auth": "", "dsn": "",
    }.items()
)  # fmt: skip
"""Label, separator and value, for texts in lower case, by the word that the label begins with.

Groups of each pattern: label, separator, then the value in one of five.
"""

_MARKS = "-:/=?&%#$;<"
_BESIDE = {"cookie": "=", "identif": "'"}
"""Characters that every match holds which begins with a gate of letters."""

GATES: dict[str, dict[str, tuple[int, ...]]] = {}
"""Characters that every text is searched for, each with the gates that hold it, each with its places in `STRUCTURES`."""

DIGITS = tuple((shape.needles[0], place) for place, shape in enumerate(STRUCTURES) if shape.gates == ("",))
"""Needles of shapes without a gate, with their places in `STRUCTURES`; each holds `0000`, for four digits."""

for _place, _structure in enumerate(STRUCTURES):
    for _gate in filter(None, _structure.gates):
        _character = _BESIDE.get(_gate) or next((one for one in _MARKS if one in _gate), "")
        _gates = GATES.setdefault(_character, {})
        _gates[_gate] = (*_gates.get(_gate, ()), _place)

LABEL_ENDS = frozenset(
    end.encode()
    for end in "ord swd ase ode ort ass pwd ret ken key ial als otp pin cvv cvc ssn sig ure jwt _id -id nid sid did"
    " nic uth dsn lue ash ing b64 e64".split()
)
"""Last three bytes of every label, in lower case and without trailing digits."""

SEPARATED = bytes(58 if byte in b":=" else byte for byte in range(256))
QUOTES = b"\"'`\\ \t])?"
"""Characters allowed between a label and its separator."""

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
    value values name names field fields found gone lost bad good""".split()
)
"""Values that are not secrets: types, constants, and words of sentences about secrets."""

REST = re.compile(rb"[^\s\"'`,;&<>\\]*")
"""What follows the judged part of a value without quotes."""

_PLACEHOLDER = re.compile(
    rb"\$\w+|\$\{.*|\$\(.*|\{\{?.*|%\w+%|<.*|\.\.\.+|[*xX\xe2\x80\xa2#_-]+|%[sdr]|\[redacted.*|\(.*|\[.*|@\w+|[-+*/|&!?.,:;=~^]*",
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
    return _PLACEHOLDER.fullmatch(value) is not None or value.strip(b".,:!?").lower() in _WORDS


def is_header_value(value: bytes) -> bool:
    """Whether the value of an authorization header contains more than its scheme or a variable."""
    secret = value.split()[-1] if value.split() else b""
    return not is_placeholder(secret) and not (_CODE.fullmatch(secret) and secret.lower() == secret)


def labelled_secret(  # noqa: C901, PLR0912 - a classifier is a list of early returns
    match: re.Match[bytes], text: bytes
) -> tuple[int, int] | None:
    """Place of the secret in a match of one of `LABELLED`; None where the value is none. `text` is in its own case."""
    label, separator = match.group(1), match.group(2)
    group = match.lastindex or 0
    start, end = match.span(group)
    value = text[start:end]
    bare = group == 7
    before = text[max(0, match.start() - 40) : match.end(1)]
    env = _ENV.search(before) is not None and (len(label) > 3 or text[match.start() - 1 : match.start()] == b"_")
    if not value or is_placeholder(value) or (bare and text[end : end + 1] in {b"(", b"["}):
        return None
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
        return (start, end) if sum(map(_is_digit, value)) >= 3 and len(value) <= 16 else None
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
