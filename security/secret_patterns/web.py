"""Secrets in HTTP headers and URLs."""

from __future__ import annotations

import re

from .shapes import shape
from .values import CODE, UUID, has_entropy, is_given, is_placeholder

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


def _is_opaque_value(match: re.Match[bytes], text: bytes) -> bool:
    """Whether a part of a path is a key, neither a word nor the id of something."""
    value = text[slice(*match.span(1))]
    return has_entropy(match, text) and _ID.fullmatch(value) is None


def is_header_value(value: bytes) -> bool:
    """Whether the value of an authorization header contains more than its scheme or a variable."""
    secret = value.split()[-1] if value.split() else b""
    return not is_placeholder(secret) and not (CODE.fullmatch(secret) and secret.lower() == secret)


_ID = re.compile(rf"{UUID}|[0-9a-f]{{40}}|[0-9a-f]{{64}}|\d+".encode())
_PORT = re.compile(rb"\d{1,5}/")

WEB = (
    shape("header", "^authorization",
      r"(?#folded)authorization(?:\\*['\"])?\]?\s*[:=,]\s*(?:\\*[\"'])?(?:f\\*['\"])?([^\s\r\n'\",;}\\][^\r\n'\",;}\\]*)",
      lambda match, text: is_header_value(text[slice(*match.span(1))])),
    shape("cookie", "^cookie|set-cookie|setcookie",
      r"(?#folded)(?<![a-z])(?:set-?)?cookies?(?:\\*['\"])?\s*[:=]\s*(?:\\*[\"'])?([^\s=\r\n'\"}\\]{0,256}=[^\r\n'\"}\\]*)"),
    shape("session cookie", "^sess=|session=|sessid=|sess_id=|sessionid=|session_id=|samlresponse=|sid=",
      r"(?#folded)(?:sess(?:ion)?(?:_?id)?|samlresponse|(?<![a-z])sid)=([a-z0-9%._:~+/-]{8,})", has_entropy),
    shape("bearer", "^bearer|basic|digest|negotiate|token ",
      r"(?#folded)(?<![a-z])(?:(?:bearer|basic|digest|negotiate)\s+|token +)([a-z0-9+/._~=-]{8,})", has_entropy),
    shape("credentials in a URL", "^://", r"://[^\s/@'\":]*:([^\s/'\"@]*(?:@[^\s/'\"@.]*)*)@", is_given, "@"),
    shape("password with a slash in a URL", "^://", r"://[^\s/@'\":]{1,80}:([^\s'\"@:/]{1,80}/[^\s'\"@:]{0,80})@",
      lambda match, _: not _PORT.match(match[1]), "@"),
    shape("user in a URL", "^://", r"://([A-Za-z0-9_-]{16,}):?@", None, "@"),
    shape("jdbc", "^jdbc:", r"jdbc:\w{1,20}:\w{1,20}:[\w.-]{1,80}/([^\s@/'\"]+)@", is_given),
    shape("webhook", "hooks.slack.com/|/api/webhooks/|webhook.office.com/|hooks.zapier.com/|.tines.com/webhook/|events.pagerduty.com/integration/",
      rf"https?://(?:{_WEBHOOKS})/([^\s'\"<>\\]+)"),
    shape("secret in a path", "/key/|/token/|/secret/|/apikey/|/api_key/|/api-key/",
      r"(?#folded)://[\w.:-]{1,120}/(?:[^\s'\"<>\\?#]{0,200}?/)??(?:key|token|secret|api[_-]?key)/([\w-]{20,})", _is_opaque_value),
    shape("channel", "^/t/", r"/t/([a-z]{2}-[0-9a-f]{8}-[0-9a-f-]{27})"),
    shape("hook", "^/hooks/", r"/hooks/([a-z0-9]{26})(?![a-z0-9])"),
    shape("query", "|".join(f"{name}{equals}" for name in _IN_QUERY_ENDS for equals in ("=", "%0d")),
      rf"(?#folded)(?:[?&#]|%26|%3f)(?=[\w-]{{2,64}}+[=%])(?:{_IN_QUERY})(?:=|%3d)([^&\s'\"<>\\)\]]+)", is_given),
)  # fmt: skip
"""Headers, cookies, credentials and tokens in URLs."""
