"""Secrets in configuration: lines of servers and clients, XML, lists of names and values."""

from __future__ import annotations

import re

from .names import NAME_STEMS, is_secret_name
from .shapes import shape
from .values import QUOTE, VALUE, has_entropy, is_given, is_mixed, is_named, is_random_value

_DIRECTIVES = "password passwd passphrase passwort kennwort bindpw rootpw psk secret community".split()
_NAMED = r"(?:name|key|field|header|variable|property|param|setting)"


def _is_named_after(match: re.Match[bytes], text: bytes) -> bool:
    """Whether the name that follows a value is that of a secret."""
    name = _NAME_AFTER.match(text, match.end())
    return name is not None and is_secret_name(name[1].decode("utf-8", "replace")) and is_given(match, text)


def _is_secret_tag(match: re.Match[bytes], text: bytes) -> bool:
    """Whether an attribute `value` or `content` belongs to an element of a password, or with the name of a secret."""
    tag = text[slice(*match.span())]
    names = _NAME_IN_TAG.findall(tag)
    return is_given(match, text) and any(is_secret_name(name.decode("utf-8", "replace")) for name in names)


def _is_directive(match: re.Match[bytes], text: bytes) -> bool:
    """Whether what follows a word for passwords at the beginning or the end of a line is one."""
    value = text[slice(*match.span(1))]
    before = text[max(0, match.start() - 24) : match.start()]
    return (
        is_mixed(match, text)
        and (len(value) > 7 or value != value.lower())
        and (_BEGINS_LINE.search(before) is not None or _LINE_END.match(text, match.end()) is not None)
    )


_BEGINS_LINE = re.compile(rb"(?:\A|\n)[ \t]{0,16}\Z")
_LINE_END = re.compile(rb"\\*[\"']?[ \t]{0,4}(?:[\n;\"']|\Z)")
_NAME_AFTER = re.compile(
    rf"\s{{0,4}},?\s{{0,24}}{QUOTE}(?i:{_NAMED}){QUOTE}\s{{0,4}}[:=]\s{{0,4}}{QUOTE}([\w .-]{{2,64}})".encode()
)
_NAME_IN_TAG = re.compile(rb"(?i:name|key|id|type|property)\s{0,4}=\s{0,4}\\*[\"']?([\w.:-]{2,64})")

CONFIGURATION = (
    shape("sonar", "^sonar.login", r"(?#folded)sonar\.login\s{0,4}=\s{0,4}\\*[\"']?([^\s\"'\\]+)", is_given),
    shape("zookeeper", "^addauth digest ", r"addauth digest [\w.@-]{1,80}:([^\s\"'\\]+)", is_given),
    shape("imap", "^0 login ", r"\d LOGIN {1,4}\\*\"?[\w.@+-]{1,80}\\*\"? {1,4}\\*\"?([^\s\"\\]{3,})", is_given),
    shape("pop, ftp", "^user ", r"\bUSER {1,2}[\w.@+-]{1,80}[\s\\\"'][^<>{}]{0,200}?\bPASS {1,2}([^\s\"'\\]{3,})", is_given, "pass "),
    shape("sent pass", "^> pass |c: pass ", r"(?:> |C: )PASS {1,2}([^\s\"'\\]{3,})", is_given),
    shape("smtp", "^000 ugfzc0dvcmq0", r"334 UGFzc3dvcmQ6(?:\s|\\[rn]){1,8}(?:(?:C:|-*>)\s)?([A-Za-z0-9+/]{4,}={0,2})"),
    shape("smtp login", "^auth login", r"AUTH LOGIN\s{0,2}\n\s{0,2}((?:[A-Za-z0-9+/]{4,88}={0,2}\s{0,2}\n\s{0,2})?[A-Za-z0-9+/]{4,88}={0,2})(?=\s|[\"'\\]|\Z)", has_entropy, "\n"),
    shape("redis", "^auth |requirepass |masterauth ",
      r"\b(?:AUTH +(?:[\w.-]{1,40} +(?=[^\s]{0,40}[0-9A-Z]))?|requirepass +|masterauth +)\\*[\"']?([^\s\"'\\]{5,})", is_random_value),
    shape("cisco", "^password 0 |secret 0 ", r"\b(?:password|secret) [057] ([^\s'\"\\]{8,})", has_entropy),
    shape("netrc", "^login", r"(?#folded)\blogin\s+\S+\s+(?:account\s+\S+\s+)?password\s+(\S+)", is_given, "password"),
    shape("netrc machine", "^machine", r"(?#folded)\bmachine\s+\S+\s[^\n]{0,200}?\bpassword\s+(\S+)", is_given, "password"),
    shape("pgpass", "^:00:|:000:|:0000:|:00000:|:*:",
      r":(?<=[\w.*-]:)(?:\d{2,5}|\*):[\w*-]+:[\w*.@-]+:([^\s:\"'\\/]+):?", is_given),
    shape("odbc", "^pwd=|password=", r"(?#folded)(?:pwd|password)=([^;\"'\n=&]{1,80});", is_given, ";"),
    shape("element", "password|passwd|secret|token|apikey|api_key|keymaterial|psk",
      r"(?#folded)<(?:[\w.:-]*(?:password|passwd|secret|token|api_?key|keymaterial|psk))(?:\s[^<>]{0,200})?>(?:\s{0,40}<value>|<!\[cdata\[)?([^<>\n]+)>?</", is_given, "</"),
    shape("tag", "^<input|<meta|<add|<param|<property|<variable|<entry|<setting|<item",
      r"<(?i:input|meta|add|param|property|variable|entry|setting|item)\b[^<>]{0,300}?\s(?i:value|content)\s{0,4}=\s{0,4}\\*[\"']([^\"'<>\\]+)\\*[\"'][^<>]{0,300}",
      _is_secret_tag, "value|content"),
    shape("named value", "val|content",
      rf"(?#folded){_NAMED}{QUOTE}\s{{0,4}}[:=]\s{{0,4}}{QUOTE}([\w .-]{{2,64}}){QUOTE}\s{{0,4}},?(?:\s|\\n?){{0,24}}(?:-\s)?{QUOTE}(?:values?|val|content){QUOTE}\s{{0,4}}[:=]\s{{0,4}}(?:\[\s{{0,4}})?{VALUE}",
      is_named, _NAMED[3:-1], NAME_STEMS),
    shape("value with a name", "^val|content",
      rf"(?#folded)(?<![a-z])(?:value|val|content){QUOTE}\s{{0,4}}[:=]\s{{0,4}}\\*[\"']([^\"'\\\n]{{1,400}})\\*[\"']", _is_named_after, NAME_STEMS),
    shape("directive", "^" + "|".join(f"{word}{blank}" for word in _DIRECTIVES for blank in (" ", "\t")),
      rf"(?#folded)(?:{'|'.join(_DIRECTIVES)})[ \t]{{1,8}}(?<!:)\\*[\"']?([^\s\"'\\,;(){{}}<>=]{{6,}})", _is_directive),
    shape("sentinel", "^auth-pass ", r"auth-pass [\w.-]{1,60} ([^\s\"'\\]{5,})", is_mixed),
    shape("user line", "^user ", r"(?:(?<=\n)|(?<=\n )|\A)user {1,4}[\w.@-]{1,60} {1,4}([^\s\"'\\]{6,})(?=[ \t]{0,4}(?:[\n\"']|\Z))", _is_directive),
    shape("chap", " * ", r"(?<![\w.@-])[\w.@-]{1,60}[ \t]{0,8} \* [ \t]{0,8}\\*[\"']?([^\s\"'\\*]{6,})\\*[\"']?[ \t]{1,8}\*(?=[ \t]{0,4}(?:[\n\"']|\Z))", is_mixed),
    shape("redis user", "^setuser", r"(?i:setuser)\s{1,4}\S{1,80}[^\n]{0,100}?\s>([^\s\"'\\]{4,})", is_given),
    shape("wifi code", "^wifi:", r"(?i:wifi):[^\n\"']{0,100}?;P:([^;\n\"']+);", is_given),
    shape("kubernetes secret", "^kind:",
      r"(?#folded)\bkind:\s{0,4}secret\b[\s\S]{0,300}?\b(?:string)?data:(?:\s|\\n?){1,20}([\w.-]{1,80}:[^\n\"\'\\]*(?:\n[ \t]{1,12}[\w.-]{1,80}:[^\n\"\'\\]*)*)"),
)  # fmt: skip
