"""Secrets on command lines: flags, places of arguments, what is piped into a program."""

from __future__ import annotations

from .shapes import shape
from .values import VALUE, is_given, is_mixed, is_named, is_named_and_random

_FLAGS = r"oauth2-bearer|password|passwd|pass|passphrase|token|api-?key|secret|auth-?key|access-?key|secret-?key|private-?key|pin|otp|pw|setcookie|account-key|shared-key|master-key|encryption-key"
_SET = r"(?:\bset(?:x|env|var)?|\bconfig(?: set)?|\bput|#define) [ \t]{0,3}"
_WORD = r"\\*['\"]?([^\s'\"\\|;&-][^\s'\"\\|;&]*)"
_ANY = r"\\*['\"]?([^\s'\"\\|;&]+)"
_TEXT = r"\\*['\"]?([^\s'\"\\]+)"
"""Arguments: a word that is no flag, any word, one with the signs of a shell."""
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
        ("mc", " set ", r"alias +set +\S{1,80} +\S{1,200} +\S{1,128} +" + _TEXT, "alias"),
        ("openssl", "^openssl", r"-k {1,4}" + _WORD),
        ("ssh-keygen", "^ssh-keygen", r"-[NP] {0,4}" + _WORD),
        ("snmpwalk snmpget snmpset snmpbulkwalk snmptrap", "^snmp", r"-[AX] {0,4}" + _WORD),
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
        ("gh", " set ", r"secret +set [^\n|;&]{0,100}?(?:--body|-b)[ =]{1,4}" + _TEXT, "secret"),
    )
)  # fmt: skip
"""Programs, needles, the flag or place of their password, and what their command has beside."""

COMMANDS = (
    shape("set command", "^set |setx |setenv |setvar |config |put |#define ",
      rf"(?#folded){_SET}(?:--?[\w-]{{1,30}}[ \t]{{1,4}}){{0,3}}\\*[\"']?([\w./:@-]{{2,80}})\\*[\"']?\s{{1,4}}\\*[\"']?([^\s\"'`|;&\\<>=(){{}}\[\],]{{6,}})", is_named_and_random),
    shape("flag", "-oauth0-bearer|-pass|-token|-api|-secret|-auth|-access|-private|-pin|-otp|-pw|-setcookie|-account-key|-shared-key|-master-key|-encryption-key",
      rf"(?#folded)-(?:(?<=[ \"'\[=(\n]-)|(?<=\A-))-?(?:[a-z]+-)?(?:{_FLAGS})(?:=|\s+|\\*[\"'],\s{{0,4}}){VALUE}", is_given),
    shape("windows flag", "^/p:|/pass:|/password:", r"(?#folded)(?<=\s)/p(?:ass(?:word)?)?:" + _TEXT, is_given),
    shape("user flag", "^-u|--user|--proxy-user", r"(?:(?<=[ \"'])|\A)(?:-u|--user|--proxy-user|-U)[=\s]++\\*+['\"]?[^\s:'\"]+:([^\s'\"\\]+)", is_given),
    *(
        shape(programs[0], needles, rf"(?<![\w.-])(?:{'|'.join(programs)})(?![A-Za-z0-9])[^\n|;&]{{0,300}}? {pattern}", is_given, *beside)
        for programs, needles, pattern, beside in _PROGRAMS
    ),
    shape("password by a pipe", "cryptsetup|kinit|smbpasswd|su -|secret create|chpasswd|--password-stdin|--stdin|--with-token|--passphrase-fd|secret put|secret set|sudo",
      r"\b(?:echo|printf)\s{1,4}(?:-[ne]{1,2}\s{1,4})?(?:\\*['\"]?%s(?:\\++n)?\\*['\"]?\s{1,4})?\\*['\"]?([^\s'\"|\\]+)(?:\\++n)?\\*+['\"]?\s{0,4}\\*+\|\s{0,4}(?:sudo\s+-S|(?:sudo\s+)?(?:chpasswd|cryptsetup|kinit|smbpasswd|su -|(?:docker|podman) secret create)|[\w./-]{1,40}\s[^\n|;]{0,200}?(?:--password-stdin|--stdin|--with-token|--passphrase-fd|secret (?:put|set)))",
      is_given, "echo|printf"),
    shape("password by a here string", "<<<",
      r"(?:--with-token|--password-stdin|chpasswd|passwd|sudo -S)[^\n<]{0,80}<<<\s{0,4}\\*['\"]?(?:[\w.@-]{1,80}:)?([^\s'\"\\]+)", is_given),
    shape("secure string", "^convertto-securestring", r"(?#folded)convertto-securestring\s+(?:-string\s+)?\\*[\"']([^\"'\n\\]+)", is_given),
    shape("user and password", " -p| -w",
      r"(?: -[ul] |--user(?:name)?[ =])[^\s-]\S{0,79} (?:[^\n|;&]{0,120}? )??-[pPw](?: |(?=\\*['\"]))" + _WORD, is_mixed, " -u| -l|--user"),
    shape("registry value", "/v ", r"/v {1,4}([\w.-]{2,64}) [^\n|;&]{0,80}?/d {1,4}\\*[\"']?([^\s\"'\\]+)", is_named, "/d "),
    shape("sent line", "^send ", r"\bsend (?:-- )?\\*[\"']([^\"'\\\n]{5,})\\{1,4}[rn]", is_mixed),
)  # fmt: skip
