"""Secrets recognised by what stands around them: keys, hashes, HTTP, commands, configuration, programs, prose."""

from __future__ import annotations

import re

from .labels import PASSWORDS
from .names import NAME_STEMS, is_secret_name
from .shapes import shape
from .tables import TABLES
from .values import (
    CODE,
    QUOTE,
    UUID,
    VALUE,
    has_entropy,
    is_given,
    is_mixed,
    is_named,
    is_named_and_random,
    is_placeholder,
    is_random_value,
)

_SIGNATURE = re.compile(rb"(?i:transaction|signature|tx)")


def _are_bytes(match: re.Match[bytes], _: bytes) -> bool:
    """Whether numbers are the bytes of a key."""
    numbers = [int(one) for one in match[1].split(b",")]
    return max(numbers) < 256 and len(set(numbers)) > 32


def _is_of_jwk(match: re.Match[bytes], text: bytes) -> bool:
    """Whether a member of an object belongs to a private key in JSON."""
    return has_entropy(match, text) and b"kty" in text[max(0, match.start() - 4_000) : match.end() + 4_000]


_PRIVATE_PARTS = ("d", "k", "p", "q", "dp", "dq", "qi")
_HEX = [f"{first}{second}" for first in "0abcdef" for second in "0abcdef"]

KEYS = (
    shape("private key", "private key|static key v0",
      r"-{4,5} ?BEGIN [A-Za-z0-9 ]*(?:PRIVATE KEY(?: BLOCK)?|Static key V\d) ?-{4,5}[\s\S]*?(?:-{4,5} ?END[^-]*-{4,5}|\Z)"),
    shape("private key cut", "private key",
      r"(?<![A-Za-z0-9+/=\\])((?:[A-Za-z0-9+/=]{16,76}(?:\s|\\n?){1,4}){1,80})-----END [A-Z0-9 ]*PRIVATE KEY"),
    shape("putty key", "^putty-user-key-file-", r"PuTTY-User-Key-File-\d[\s\S]*?(?:Private-MAC:\s*[0-9a-f]+|\Z)"),
    shape("ansible vault", "^$ansible_vault;",
      r"\$ANSIBLE_VAULT;[\d.]{1,8};AES256?(?:;[\w.-]{1,80})?(?:\s|\\n?){1,8}((?:\s|\\n?){0,32}[0-9a-f]{16,}+(?:(?:\s|\\n?){1,32}[0-9a-f]{16,}+)*)"),
    shape("solana", "^[0,|[00,|[000,", r"\[(\d{1,3}(?:,\s{0,8}\d{1,3}){63})\s{0,8}\]", _are_bytes),
    shape("solana key", "^solana|keypair|phantom|secret key|private key", r"(?i:solana|keypair|phantom|secret key|private key)[^\n]{1,60}?(?<![A-Za-z0-9])([1-9A-HJ-NP-Za-km-z]{86,88})(?![A-Za-z0-9])",
      lambda match, _: _SIGNATURE.search(match.string, match.start(), match.start(1)) is None),
    shape("jwk", "^" + "|".join(f"{quote}{name}{end}" for name in _PRIVATE_PARTS for quote in "\"'" for end in "\"'\\"),
      rf"[\"'](?:{'|'.join(_PRIVATE_PARTS)})(?:\\{{0,8}}[\"'])\s{{0,4}}:\s{{0,4}}\\{{0,8}}[\"']([\w-]{{20,}})", _is_of_jwk),
    shape("minisign", "^minisign encrypted secret key", r"minisign encrypted secret key(?:\s|\\n?){1,4}([A-Za-z0-9+/=]{40,})"),
)  # fmt: skip

# Hashes, then tokens with other signs in them, and numbers
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


def _is_credential(match: re.Match[bytes], text: bytes) -> bool:
    """Whether the password of a URL is none of an example."""
    return is_given(match, text) and not match.group().endswith((b"user:password@", b"username:password@"))


_ID = re.compile(rf"{UUID}|[0-9a-f]{{40}}|[0-9a-f]{{64}}|\d+".encode())
_PORT = re.compile(rb"\d{1,5}/")

# Headers, cookies, credentials and tokens in URLs
WEB = (
    shape("header", "^authorization",
      r"(?#folded)authorization(?:\\*['\"])?\]?\s*[:=,]\s*(?:\\*[\"'])?(?:f\\*['\"])?([^\s\r\n'\",;}\\][^\r\n'\",;}\\]*)",
      lambda match, text: is_header_value(text[slice(*match.span(1))])),
    shape("cookie", "^cookie|set-cookie|setcookie",
      r"(?#folded)(?<![a-z])(?:set-?)?cookies?(?:\\*['\"])?\s*[:=]\s*(?:\\*[\"'])?([^\s=\r\n'\"}\\]{0,256}=[^\r\n'\"}\\]*)"),
    shape("session cookie", "^sess=|session=|sessid=|sess_id=|sessionid=|session_id=|samlresponse=|sid=",
      r"(?#folded)(?:sess(?:ion)?(?:_?id)?|samlresponse|(?<![a-z])sid)=([a-z0-9%._:~+/-]{8,})", has_entropy),
    shape("cookie in JSON", "^value|httponly",
      rf"(?#folded)(?:value{QUOTE}\s{{0,4}}:\s{{0,4}}\\*[\"']([^\"'\\\n]{{8,400}})\\*[\"'][^{{}}]{{0,300}}?httponly"
      rf"|httponly[^{{}}]{{0,300}}?value{QUOTE}\s{{0,4}}:\s{{0,4}}\\*[\"']([^\"'\\\n]{{8,400}}))", has_entropy, "httponly"),
    shape("bearer", "^bearer|basic|digest|negotiate|token ",
      r"(?#folded)(?<![a-z])(?:(?:bearer|basic|digest|negotiate)\s+|token +)([a-z0-9+/._~=-]{8,})", has_entropy),
    shape("password with an at sign and a slash in a URL", "^://", r"://[^\s/@'\":]{1,80}:([^\s'\":/@]{1,80}@[^\s'\":@/]{0,80}/[^\s'\":@]{0,80})@[\w.-]{1,80}:\d", None, "@"),
    shape("credentials in a URL", "^://", r"://[^\s/@'\":]*:([^\s/'\"@]*(?:@[^\s/'\"@.]*)*)@", _is_credential, "@"),
    shape("user of hidden credentials in a URL", "^://", r"://([0-9a-f]{32}):\xff{1,400}@", None, "@"),
    shape("go database", "@tcp(|@unix(", r"(?<![\w.-])[\w.-]{1,80}:([^\s'\"\\@]{1,120})@(?:tcp|unix)\(", is_given),
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


def _is_flag_value(match: re.Match[bytes], text: bytes) -> bool:
    """Whether what follows a flag is its value, not words of a manual in the column beside it."""
    return is_given(match, text) and _MANUAL.search(text, match.start(), match.end() + 2) is None


_MANUAL = re.compile(rb"  [A-Za-z]+ [A-Za-z]\Z")
_FLAGS = r"oauth2-bearer|password|passwd|pass|passphrase|token|api-?key|secret|auth-?key|access-?key|secret-?key|private-?key|pin|otp|pw|setcookie|account-key|shared-key|master-key|encryption-key"
_SET = r"(?:\bset(?:x|env|var)?|\bconfig(?: set)?|\bput|#define) [ \t]{0,3}"
_WORD = r"\\*['\"]?([^\s'\"\\|;&-][^\s'\"\\|;&]*)"
_ANY = r"\\*['\"]?([^\s'\"\\|;&]+)"
_TEXT = r"\\*['\"]?([^\s'\"\\]+)"  # Arguments: a word that is no flag, any word, one with the signs of a shell
# Programs, needles, the flag or place of their password, and what their command has beside
_PROGRAMS = tuple(
    (programs.split(), needles, pattern, beside)
    for programs, needles, pattern, *beside in (
        ("mysql mysqldump mysqladmin mysqlimport mariadb 7z 7za 7zr unrar rar", " -p", r"-p" + _WORD, "mysql|mariadb|0z|rar"),
        ("mongo mongosh mongodump mongorestore sshpass psexec", " -p", r"-p {0,4}" + _WORD, "mongo|sshpass|psexec"),
        ("docker podman helm nerdctl buildah skopeo oras az oc", " -p", r"login\b[^\n|;&]{0,200}? -p[ =]{1,4}" + _ANY, "login"),
        ("redis valkey", " -a| --pass", r"(?:-a|--pass)[ =]{1,4}" + _ANY, "redis|valkey"),
        ("zip unzip sqlcmd bcp tsql ipmitool mosquitto", " -p", r"-P[ =]{0,4}\\*['\"]?(?![./])([^\s'\"\\|;&-][^\s'\"\\|;&]*)", "zip|sqlcmd|bcp|tsql|ipmitool|mosquitto"),
        ("ldapsearch ldapmodify ldapadd ldapdelete ldapwhoami ldappasswd", "^ldap", r"-[wsa][ =]{1,4}" + _ANY),
        ("keytool jarsigner apksigner", "storepass|-keypass", r"-(?:storepass|keypass|srcstorepass|deststorepass)[ =]{1,4}" + _ANY),
        ("schtasks", "^schtasks", r"/rp {1,4}" + _ANY),
        ("net", " /user", r"use +\S{1,80} +\S{1,80} +([^\s/*][^\s/]*) +/user", "net"),
        ("net", " user ", r"user +[\w.-]{1,80} +([^\s/*][^\s/]*)(?: +/|\s*\Z)", "net"),
        ("smbclient rpcclient winexe smbmap net", " -u", r"-U {0,4}\\*['\"]?[\w.\\-]{1,80}%([^\s'\"\\]+)", "%"),
        ("openssl", "^openssl", r"-K {1,4}([0-9A-Fa-f]{16,})"),
        ("htpasswd", "^htpasswd", r"(?:-(?=\w{0,4}n)\w{1,5}|-\w{0,4}b\w{0,4} +\S{1,80}) +\S{1,80} +" + _TEXT),
        ("rabbitmqctl", "^rabbitmqctl", r"(?:add_user|change_password|authenticate_user) +[\w.@-]{1,80} +" + _TEXT),
        ("wpa_passphrase", "^wpa_passphrase", r"\S{1,80} +" + _TEXT),
        ("rclone", "^rclone", r"obscure +" + _TEXT),
        ("rclone", "^rclone", r"(?:pass|password2?|client_secret|secret_access_key|account_key|key|token)[ =]{1,4}" + _TEXT),
        ("mc", " set ", r"alias +set +\S{1,80} +\S{1,200} +\S{1,128} +" + _TEXT, "alias"),
        ("openssl", "^openssl", r"-k {1,4}" + _WORD),
        ("ssh-keygen", "^ssh-keygen", r"-[NP] {0,4}" + _WORD),
        ("snmpwalk snmpget snmpset snmpbulkwalk snmptrap", "^snmp", r"-[AXc] {0,4}" + _WORD),
        ("lftp", "^lftp", r"-u {0,4}\\*['\"]?[\w.@-]{1,80},([^\s'\"\\]+)"),
        ("db2", " using ", r"user +[\w.-]{1,80} +using +" + _TEXT, "db0"),
        ("secretsdump wmiexec smbexec psexec atexec dcomexec mssqlclient getuserspns getnpusers", "@",
         r"[^\s'\"\\]{1,60}/[\w.-]{1,60}:\\*['\"]?([^\s@'\"\\]+)\\*['\"]?@", "exec|secretsdump|mssqlclient|getuserspns|getnpusers"),
        ("sqlplus", "^sqlplus", r"[\w.-]{1,80}/([^\s@/'\"\\]+)@"),
        ("useradd usermod", " -p", r"-p[ =]{1,4}" + _ANY, "user"),
        ("doctl", "^doctl", r"(?:-t|--access-token)[ =]{1,4}" + _ANY),
        ("nmcli", "^nmcli", r"password +" + _TEXT),
        ("poetry composer", "http-basic", r"http-basic\.\S{1,80} +\S{1,80} +([^\s'\"\\]+)"),
        ("curl", "^curl", r"-u {0,4}\\*['\"]?[\w.@-]{1,80}:([^\s'\"\\]+)", " -u"),
        ("curl", "^curl", r"(?:--cert|-E) +[\w./-]{1,120}:([^\s'\"\\/]+)", " --cert| -e"),
        ("http https httpie xh", " -a | --auth ", r"(?:-a|--auth) +\\*['\"]?[\w.@-]{1,80}:([^\s'\"\\]+)", "http|xh"),
        ("kubectl oc", "--from-literal", r"secret\b[^\n|;&]{0,300}?--from-literal[= ]\\*['\"]?[\w.-]{1,80}=([^\s'\"\\]+)"),
        ("ngrok wandb vault", "^ngrok|wandb|vault", r"(?:authtoken|login) +\\*['\"]?([\w.-]{16,})"),
        ("vault", "^vault", r"kv +(?:put|patch) +(?:-\S{1,60} +){0,3}\S{1,120} +[\w.-]{1,60}=" + _TEXT, " kv "),
        ("gh", " set ", r"secret +set [^\n|;&]{0,100}?(?:--body|-b)[ =]{1,4}" + _TEXT, "secret"),
    )
)  # fmt: skip

COMMANDS = (
    shape("set command", "^set |setx |setenv |setvar |config |put |#define ",
      rf"(?#folded){_SET}(?:--?[\w-]{{1,30}}[ \t]{{1,4}}){{0,3}}\\*[\"']?([\w./:@-]{{2,80}})\\*[\"']?\s{{1,4}}\\*[\"']?([^\s\"'`|;&\\<>=(){{}}\[\],]{{6,}})", is_named_and_random),
    shape("flag", "-oauth0-bearer|-pass|-token|-api|-secret|-auth|-access|-private|-pin|-otp|-pw|-setcookie|-account-key|-shared-key|-master-key|-encryption-key",
      rf"(?#folded)-(?:(?<=[ \"'\[=(\n]-)|(?<=\A-))-?(?:[a-z]+-)?(?:{_FLAGS})(?:=|\s+|\\*[\"'],\s{{0,4}}){VALUE}", _is_flag_value),
    shape("windows flag", "^/p:|/pass:|/password:", r"(?#folded)(?<=\s)/p(?:ass(?:word)?)?:" + _TEXT, is_given),
    shape("user flag", "^-u|--user|--proxy-user", r"(?:(?<=[ \"'])|\A)(?:-u|--user|--proxy-user|-U)[=\s]++\\*+['\"]?[^\s:'\"]+:([^\s'\"\\]+)", is_given),
    *(
        shape(programs[0], needles, rf"(?<![\w.-])(?:{'|'.join(programs)})(?![A-Za-z0-9])[^\n|;&]{{0,300}}? {pattern}", is_given, *beside)
        for programs, needles, pattern, beside in _PROGRAMS
    ),
    shape("password by a pipe", "cryptsetup|kinit|smbpasswd|su -|secret create|chpasswd|--password-stdin|--stdin|--with-token|--passphrase-fd|secret put|secret set|sudo",
      r"\b(?:echo|printf)\s{1,4}(?:-[ne]{1,2}\s{1,4})?(?:\\*['\"]?%s(?:\\++n)?\\*['\"]?\s{1,4})?\\*['\"]?([^\s'\"|\\]+)(?:\\++n)?\\*+['\"]?\s{0,4}\\*+\|\s{0,4}(?:sudo\s+-S|(?:sudo\s+)?(?:chpasswd|cryptsetup|kinit|smbpasswd|su -|(?:docker|podman) secret create)|[\w./-]{1,40}\s[^\n|;]{0,200}?(?:--password-stdin|--stdin|--with-token|--passphrase-fd|secret (?:put|set)))",
      is_given, "echo|printf"),
    shape("mask of a log", "^::add-mask::", r"::add-mask::([^\s\"'\\]{3,})", is_given),
    shape("password by a here string", "<<<",
      r"(?:--with-token|--password-stdin|chpasswd|passwd|sudo -S)[^\n<]{0,80}<<<\s{0,4}\\*['\"]?(?:[\w.@-]{1,80}:)?([^\s'\"\\]+)", is_given),
    shape("secure string", "^convertto-securestring", r"(?#folded)convertto-securestring\s+(?:-string\s+)?\\*[\"']([^\"'\n\\]+)", is_given),
    shape("user and password", " -p| -w",
      r"(?: -[ul] |--user(?:name)?[ =])[^\s-]\S{0,79} (?:[^\n|;&]{0,120}? )??-[pPw](?: |(?=\\*['\"]))" + _WORD, is_mixed, " -u| -l|--user"),
    shape("registry value", "/v ", r"/v {1,4}([\w.-]{2,64}) [^\n|;&]{0,80}?/d {1,4}\\*[\"']?([^\s\"'\\]+)", is_named, "/d "),
    shape("sent line", "^send ", r"\bsend (?:-- )?\\*[\"']([^\"'\\\n]{5,})\\{1,4}[rn]", is_mixed),
)  # fmt: skip


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
    shape("snmp", "^snmp-server community ", r"snmp-server community {1,4}([^\s\"'\\]{3,})", is_given),
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
    shape("pair of k and v", "^'k|\"k", rf"(?#folded)[\"']k\\*[\"']\s{{0,4}}:\s{{0,4}}{QUOTE}([\w .-]{{2,64}}){QUOTE}\s{{0,4}},\s{{0,24}}{QUOTE}v{QUOTE}\s{{0,4}}:\s{{0,4}}{VALUE}", is_named, NAME_STEMS),
    shape("terraform variable", "^variable ",
      rf"(?#folded)variable {{1,4}}{QUOTE}([\w.-]{{2,64}}){QUOTE}\s{{0,4}}\{{[^{{}}]{{0,300}}?\bdefault\s{{0,4}}=\s{{0,4}}\\*\"([^\"\\\n]{{1,400}})", is_named, NAME_STEMS),
    shape("random password", "^random_password", r"random_password\\*\"[\s\S]{0,1000}?[^\w]result\\*\"\s{0,4}:\s{0,4}\\*\"([^\"\\\n]{4,})", is_given, "result"),
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


_CONNECTS = (
    "connect basicauth basic_auth networkcredential getconnection pdo passwordauthentication .auth credential credentials"
).split()


def _is_set(match: re.Match[bytes], text: bytes) -> bool:
    """Whether a call sets a password, and what it is given is one."""
    return is_random_value(match, text) and _SETS.search(text[max(0, match.end(1) - 48) : match.end(1)]) is not None


def _is_of_user(match: re.Match[bytes], text: bytes) -> bool:
    """Whether a word after `IDENTIFIED BY` stands in a statement about a user."""
    before = text[max(0, match.start() - 200) : match.start()]
    return is_given(match, text) and _USER.search(before) is not None


_USER = re.compile(rb"(?i:(?:create|alter) (?:user|role)|grant [^;\n]{1,140} to) [\w.$\"'\\-]{1,80} $")
_SETS = re.compile(rb"(?i:set|with)_?[A-Za-z_]{3,30}$|(?<![A-Za-z_])(?i:password|passwd|secret)$")

CALLS = (
    shape("sql password", "identified|password",
      r"(?#folded)(?:identified\s+(?:with\s+\w+\s+)?by|(?:with|encrypted)\s+password|(?:role|user|login)\s+\S{1,80}\s+password|password\s+for\s+[^\s=]+(?:\s*+=)?)"
      r"\s+\\*'([^'\n\\]+)", None, "'"),
    shape("oracle password", "^identified by ", r"(?#folded)identified by \\*[\"]?([^\s\"';\\]{4,})", _is_of_user),
    shape("variable", "^$pw", r"(?#folded)\$pw\s{0,4}=\s{0,4}\\*[\"']([^\"'\n\\]{3,})", is_given),
    shape("sql login", "password", r"(?#folded)with\s+password\s{0,4}=\s{0,4}n?\\*'([^'\n\\]+)", None, "with", "'"),
    shape("pair", NAME_STEMS,
      r"(?#folded)[(\[]\s{0,4}\\*[\"']([\w.-]{2,64})\\*[\"'],\s{0,4}\\*[\"']([^\"'\\\n]{1,400})\\*[\"']\s{0,4}[)\]]", is_named_and_random, "\",|',", "(|["),
    shape("setter", "^password(|passwd(|passphrase(|secret(|token(|apikey(|api_key(|pwd(",
      r"(?#folded)(password|passwd|passphrase|secret|token|api_?key|pwd)\(\s{0,4}\\*[\"']([^\"'\\\n]{1,400})\\*[\"']\s{0,4}\)", _is_set),
    shape("login with a password", "^" + "|".join(f"{word}(" for word in _CONNECTS),
      rf"(?#folded)(?:{'|'.join(map(re.escape, _CONNECTS))})\((?:[^()\n]{{0,200}},\s{{0,4}})?\\*[\"'][^\"'\\\n]{{1,100}}\\*[\"']\s{{0,4}},\s{{0,4}}\\*[\"']([^\"'\\\n]{{5,200}})\\*[\"']\s{{0,4}}\)", is_mixed),
    shape("login of a library", "^auth|.login(",
      r"(?#folded)(?:\bauth\s{0,4}=\s{0,4}|\.login)\(\s{0,4}\\*[\"'][^\"'\\\n]{1,100}\\*[\"']\s{0,4},\s{0,4}\\*[\"']([^\"'\\\n]{1,400})\\*[\"']\s{0,4}\)", is_given, "("),
)  # fmt: skip


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
    shape("typed password", "^passphrase for |password for |passcode for ", r"(?#folded)(?:passphrase|password|passcode) for [^\n]{1,120}?:[ \t]{1,4}([^\s\"'\\]{5,})", is_mixed),
    shape("key in an error", "^api key |access key |api key:|access key:", r"(?#folded)(?:api|access) key(?: provided| given)?:? \\*[\"'`]?([^\s\"'`\\,;]{12,})", is_mixed),
    shape("password before its kind", "|".join(f" as {the}{kind}" for the in ("", "the ") for kind in _NAMED_AFTER),
      rf"(?#folded)(?<![^\s\"'`])([^\s\"'`\\]{{6,80}}+)[\"'`]? as (?:the )?(?:{'|'.join(_NAMED_AFTER)})", is_mixed),
    shape("password in foreign prose", "^" + "|".join(_FOREIGN_WORDS),
      rf"(?#folded)(?:{'|'.join(_FOREIGN_WORDS)})\s(?:ist|lautet|est|es|é|è|to|je|är|er|là|—|–|это)(?:\s|\s?:\s?)\\*(?:[\"'`]|„|“|«\s?)?([^\s\"'\\,;]{{5,}})", is_random_value),
    shape("credentials", "^credential|creds|login|user/pass|zugangsdaten|identifiants|credenciales|credenziali",
      r"(?#folded)(?:credentials?|creds|login|user/pass(?:word)?|zugangsdaten|identifiants|credenciales|credenziali)(?:\s{0,4}[:=]| are| with| as)\s{0,4}[\w.@-]{1,80}\s{0,4}[/|:]\s{0,4}([^\s\"'\\,;/]{5,80})(?=[\s\"'\\,;]|\Z)", is_random_value),
    shape("code", "^code is|code:|code :|code=|code =", r"(?#folded)code(?: is| ?[:=])\s{0,4}(\d[\d -]{3,9}\d)(?![\w.])", _is_code),
)  # fmt: skip


# Secrets recognised by a header, a command, a URL or a delimiter; earlier ones may contain later ones
STRUCTURES = (*KEYS, *WEB, *COMMANDS, *CONFIGURATION, *CALLS, *TABLES, *HASHES, *PROSE)
