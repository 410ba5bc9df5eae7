"""Tokens, recognised by the letters that their vendor begins them with, or by signs in them."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from hashlib import sha256

from .formats import ALPHABETS, FORMATS
from .shapes import SecretShape, shape
from .values import DIGIT, UUID

_W = r"(?<![A-Za-z0-9])"  # No letter or digit before; an underscore is allowed: `MY_ghp_...`


def _has_digit(match: re.Match[bytes], _: bytes) -> bool:
    """Whether a token contains a digit, beside those of its prefix."""
    return DIGIT.search(match.group().removeprefix(b"wandb_v1_")) is not None


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


def _has_digit_after(begin: re.Pattern[bytes]) -> Callable[[re.Match[bytes], bytes], bool]:
    """Return a check of whether a token has a digit behind its beginning."""

    def check(match: re.Match[bytes], _: bytes) -> bool:
        token = match.group()
        found = begin.match(token)
        return found is not None and DIGIT.search(token, found.end()) is not None

    return check


def _formats() -> Iterator[SecretShape]:
    """Yield a shape for each alphabet of `FORMATS`, with the formats in it."""
    rows: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for row in FORMATS.strip().splitlines():
        alphabet, least, flag = row[:7].strip(), row[7:11].strip(" -"), row[11:17].strip()
        begins = [one for vendor in row[18:].split("; ") for one in vendor.partition(": ")[2].split()]
        rows.setdefault((alphabet, flag), []).extend((one, least) for one in begins)
    for (alphabet, flag), starts in rows.items():
        letter = ALPHABETS[alphabet]
        starts.sort(key=lambda start: -len(start[0]))
        begin = "|".join(re.escape(one) for one, _ in starts)
        runs = "|".join(re.escape(one) + (letter + f"{{{least}}}" if least else letter) for one, least in starts)
        end = {"only": f"(?!{letter})", "upper": f"{letter}*(?![a-z])", "uuid": ""}
        tail = end.get(flag) or end.get(
            alphabet, letter.replace("[", "[=") + "*" if alphabet == "any" else letter + "*"
        )
        check = _has_digit_after(re.compile(f"(?:{begin})".encode())) if flag == "digit" else None
        yield shape(
            alphabet,
            "^" + "|".join(one for one, _ in starts),
            f"{_W}(?:{runs}){tail if alphabet != 'uuid' else ''}",
            check,
        )


# Tokens in one run of at least `RUN` letters, digits, `_`, `-`, `.`, `~`, `+` and `/`
TOKENS: tuple[SecretShape, ...] = (
    *_formats(),
    *(
        shape(kind, needles[1:] if needles[0] == "*" else "^" + needles, pattern, check[0] if check else None)
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
        ("hubspot", "pat-", _W + r"pat-(?:na|eu|ap)\d-" + UUID),
        ("dynatrace", "dt0", _W + r"dt0[a-z]\d\d\.[A-Z0-9]{24}\.[A-Z0-9]{60,}"),
        ("azure ad", "*Q~", _W + r"[A-Za-z0-9_~.]{3}\dQ~[A-Za-z0-9_~.-]{31,34}"),
        ("azure devops", "*AZDO", _W + r"[A-Za-z0-9]{70,}AZDO[A-Za-z0-9]{4}"),
        ("azure registry", "*+ACR", r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{42}\+ACR[A-Za-z0-9]{6}"),
        ("azure refresh token", "0.A|1.A", _W + r"[01]\.A[\w-]{50,}+(?:\.\d)?\.Ag[\w-]{200,}"),
        ("adyen", "AQE", _W + r"AQE[A-Za-z0-9+/]{40,200}={0,2}-[A-Za-z0-9+/=]{30,}"),
        ("authress", "sc_|ext_|scauth_|authress_", _W + r"(?:sc|ext|scauth|authress)_[A-Za-z0-9]{5,30}\.[A-Za-z0-9]{4,6}\.acc[_-][a-z0-9-]{10,32}\.[A-Za-z0-9+/_=-]{30,}"),
        ("clickup", "pk_", _W + r"pk_\d{6,10}_[0-9A-Z]{32}"),
        ("defined networking", "dnkey-", _W + r"dnkey-[A-Za-z0-9_]{20,30}={0,2}-[A-Za-z0-9=_-]{40,}"),
        ("new relic license", "*FFFFNRAL", _W + r"[0-9a-fx]{32,40}FFFFNRAL"),
        ("maxmind", "*_mmk", _W + r"[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk"),
        ("harness", "pat.|sat.", _W + r"[ps]at\.[A-Za-z0-9_-]{22}\.[0-9a-f]{24}\.[A-Za-z0-9]{20}"),
        ("storyblok", "*tt-", _W + r"[0-9A-Za-z]{22}tt-\d{4,}-[A-Za-z0-9_-]{20}"),
        ("telnyx", "KEY0", _W + r"KEY0[0-9A-Z]{30,}_\w{20,}"),
        ("vendor prefix", "key_|pat_|ops_|secret_|token_|co_|pul_",
         _W + r"(?:key|pat|ops|secret|token|co|pul)_(?=[A-Za-z]*\d)(?=[A-Za-z0-9]*[A-Z])[A-Za-z0-9]{20,}"),
        ("okta", "00", _W + r"00[A-Z][A-Za-z0-9_-]{39}(?![\w-])|" + _W + r"00[A-Za-z0-9_-][A-Z][A-Za-z0-9_-]{38}(?![\w-])"),
        ("jwt", "eyJ|pk.eyJ|sk.eyJ", r"(?<![A-Za-z0-9])(?:[ps]k\.)?eyJ[A-Za-z0-9_-]{13,}+(?:\.[A-Za-z0-9_-]{6,}(?:\.[A-Za-z0-9_-]*)?)?", _has_dot),
        ("stellar", "SA|SB|SC|SD", _W + r"S[A-D][A-Z2-7]{54}(?![A-Za-z0-9])"),
        ("bitcoin, encrypted", "6P", _W + r"6P[RYn][1-9A-HJ-NP-Za-km-z]{55}(?![A-Za-z0-9])"),
        ("age plugin", "AGE-PLUGIN-", _W + r"AGE-PLUGIN-\w+-1[0-9A-Z]{20,}"),
        ("bitcoin", "xprv|yprv|zprv|tprv", _W + r"[xyzt]prv[1-9A-HJ-NP-Za-km-z]{90,}"),
        ("bitcoin", "5H|5J|5K|Kw|Kx|Ky|Kz|L1|L2|L3|L4|L5", _W + r"(?:5[HJK]|K[w-z]|L[1-5])[1-9A-HJ-NP-Za-km-z]{49,50}(?![A-Za-z0-9])", _has_checksum),
        ("private key body", "MII|MIG|MHc|MC4|b3B",
         _W + r"(?:MII[A-Za-z0-9+/]{1,4}IBA(?:AK|DA)|MI(?:GH|GE|G2)AgEAM|MHcCAQEE|MIGkAgEBBD|MC4CAQAwBQYDK2V|b3BlbnNzaC1rZXktdj)"
         r"[A-Za-z0-9+/]{8,}+={0,2}(?:(?:\s|\\n?){1,8}[A-Za-z0-9+/=]{16,76}+)*"),
        )
    ),
)  # fmt: skip

RUN = 16  # Shortest run of token characters that is checked, in bytes

BASE64 = re.compile(rb"(?<![A-Za-z0-9+_-])[A-Za-z0-9+/_-]{20,}={0,2}")

HEX = re.compile(rb"(?<![0-9A-Za-z])[0-9a-f]{32,}+(?![0-9A-Za-z])")

# Beginnings of tokens as text in hex; shorter ones are in many digests
HEX_STARTS = tuple(
    sorted(
        {needle.hex().encode() for shape in TOKENS for needle in shape.needles if shape.anchored and len(needle) > 3}
    )
)

# First characters in base64 of tokens, of an object of JSON, and of a key in PEM
ENCODED = frozenset(
    b64encode(needle[:3]) for shape in TOKENS for needle in shape.needles if shape.anchored and len(needle) > 2
) | {b"eyJ", b"LS0t"}
