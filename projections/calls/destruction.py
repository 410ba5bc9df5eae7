"""Finds what a command destroys beyond its machine: remote branches, tables of databases, resources of clouds.

Each is told from the words of one command, or from the SQL that a tool of a database is given (docs/trust.md, Before
the harm).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

MAX_SQL_CHARS = 16_384  # Number of characters of a statement that are read

_MAX_COMMAND_CHARS = 400
_WORD = r"(?:\S{1,200} ){0,12}?"
_DRY = frozenset({"--dry-run", "--dryrun", "--help", "-h", "--check", "--dry-run=client", "--dry-run=server"})
_AWS_KINDS = (
    "(?:db-instance|db-cluster|db-snapshot|table|stack|bucket|cluster|file-system|user-pool|hosted-zone|repository|volume"
    "|snapshot|secret|domain|nodegroup|vault|backup-vault|organization|vpc|distribution|key-pair|function|queue|topic)"
)
_K8S_KINDS = "(?:ns|namespaces?|projects?|pv|pvc|persistentvolume(?:claim)?s?|crds?|customresourcedefinitions?|nodes?)"
_BUCKET = r"[^/ ]{1,80}/?(?: |\Z)"
_DESTROYING = (
    # programs, and their words that destroy what others use, options among them
    ("terraform tofu", rf"{_WORD}destroy\b|{_WORD}apply {_WORD}--?destroy\b"),
    ("terragrunt", rf"{_WORD}destroy\b"),
    ("pulumi", rf"{_WORD}destroy\b|{_WORD}stack rm\b"),
    ("cdk", rf"{_WORD}destroy\b"),
    ("sls serverless", rf"{_WORD}remove\b"),
    ("kubectl oc k", rf"{_WORD}delete {_WORD}(?:{_K8S_KINDS}(?:[ /]|\Z)|--all(?:[ =]|\Z))"),
    ("aws", rf"{_WORD}(?:s3 rb|delete-{_AWS_KINDS}|terminate-instances|schedule-key-deletion)\b"),
    ("aws", rf"{_WORD}s3 rm (?={_WORD}--recursive){_WORD}s3://{_BUCKET}"),
    (
        "gcloud",
        rf"{_WORD}(?:projects|instances|clusters|databases|buckets|datasets|services|secrets|disks|snapshots) delete\b",
    ),
    ("gcloud", rf"{_WORD}storage rm (?={_WORD}(?:-r|--recursive|-R)\b){_WORD}gs://{_BUCKET}"),
    ("gsutil", rf"{_WORD}rb\b|{_WORD}rm {_WORD}-(?:r|R|rf|fr) {_WORD}gs://{_BUCKET}"),
    (
        "az",
        rf"{_WORD}(?:group|server|account|cluster|vm|db|aks|keyvault|secret|webapp|functionapp|disk|cosmosdb) delete\b",
    ),
    ("gh glab", rf"{_WORD}repo delete\b"),
    ("gh", rf"api (?={_WORD}(?:-X ?|--method[ =])DELETE\b){_WORD}/?repos/[^/ ]{{1,100}}/[^/ ]{{1,100}}(?: |\Z)"),
    ("docker podman", rf"system prune {_WORD}--volumes\b|volume prune {_WORD}(?:-af?|-fa|--all)\b"),
    ("heroku", r"(?:apps:destroy|apps:delete|pg:reset|addons:destroy)\b"),
    ("fly flyctl", r"(?:apps?|postgres|volumes?) (?:destroy|delete)\b"),
    ("doctl", rf"{_WORD}(?:droplet|cluster|databases|volume|database) delete\b"),
    ("eksctl", r"delete cluster\b"),
    ("bq", rf"{_WORD}rm {_WORD}-[a-z]*r"),
    ("rclone", r"(?:purge|delete)\b"),
    ("npm pnpm yarn", rf"{_WORD}unpublish\b"),
    ("vercel", r"(?:rm|remove) |project (?:rm|remove)\b"),
    ("netlify", r"sites:delete\b"),
    ("firebase", r"(?:firestore:delete|database:remove|projects:delete|hosting:disable)\b"),
    ("supabase", rf"projects delete\b|db reset {_WORD}--(?:linked|db-url)\b"),
    ("railway", r"(?:delete|down|environment delete|volume delete)\b"),
    ("wrangler", r"(?:delete|d1 delete|r2 bucket delete|kv namespace delete|kv:namespace delete|queues delete)\b"),
    ("neonctl neon pscale", rf"{_WORD}(?:projects?|databases?|branch(?:es)?) delete\b"),
    ("turso", r"db destroy\b"),
    ("mc s3cmd", rf"{_WORD}(?:rb|rm {_WORD}--recursive|rm -r|del {_WORD}--recursive)\b"),
    ("etcdctl", rf"{_WORD}del (?:\S{{0,200}} ){{0,4}}?--(?:prefix|from-key)\b"),
    ("consul", r"kv delete -recurse\b"),
    ("vault", r"secrets disable\b|kv metadata delete\b"),
    ("rabbitmqctl", rf"{_WORD}(?:delete_vhost|delete_queue|reset|force_reset)\b"),
    ("kafka-topics kafka-topics.sh", rf"{_WORD}--delete\b"),
    ("argocd", r"(?:app|cluster|proj) delete\b"),
    ("velero", r"(?:backup|schedule|restore) delete\b"),
)
_SCHEMA_TOOLS = (
    # programs, and their words that drop or empty the database of a project
    ("prisma", rf"migrate reset\b|db push {_WORD}--force-reset\b"),
    ("rails rake", rf"{_WORD}db:(?:drop|reset|purge|migrate:reset|drop:all)(?: |\Z)"),
    ("php artisan", r"(?:\S{0,200}artisan )?(?:migrate:(?:fresh|reset)|db:wipe)\b"),
    ("python python3", r"\S{0,200}manage\.py (?:flush|reset_db)\b"),
    ("manage.py", r"(?:flush|reset_db)\b"),
    ("mix", r"ecto\.(?:drop|reset)\b"),
    ("sequelize sequelize-cli", r"db:drop\b"),
    ("typeorm", rf"{_WORD}schema:drop\b"),
    ("drizzle-kit", r"drop\b"),
    ("flyway", rf"{_WORD}clean\b"),
    ("liquibase", rf"{_WORD}(?:drop-?all|dropAll)\b"),
    ("alembic", rf"{_WORD}downgrade base\b"),
)


def _by_program(rows: Sequence[tuple[str, str]]) -> Mapping[str, re.Pattern[str]]:
    programs = " ".join(names for names, _ in rows).split()
    return {name: re.compile("|".join(words for names, words in rows if name in names.split())) for name in programs}


_RESOURCES = _by_program(_DESTROYING)
_SCHEMAS = _by_program(_SCHEMA_TOOLS)
_DATABASES = frozenset(
    """psql mysql mariadb sqlite3 sqlite duckdb sqlcmd clickhouse-client clickhouse cqlsh mongosh mongo redis-cli
    valkey-cli dropdb mysqladmin bq snowsql isql sqlplus usql pgcli mycli litecli turso cockroach""".split()
)
# Programs that run a client of a database inside of a container (`exec`)
_CONTAINERS = frozenset({"docker", "podman", "kubectl", "oc"})

# Interpreters; of their lines only those with the script of a schema tool are read closely
_INTERPRETERS = frozenset({"python", "python3", "php"})

# Programs that can destroy something beyond the machine
PROGRAMS = frozenset({"git", *_RESOURCES, *_SCHEMAS, *_DATABASES, *_CONTAINERS})

# Every line that destroys something so contains one of these; used where another program runs the command
SIGN = re.compile(
    r"\bpush\b[^\n;|&]{0,200}?(?:\s-[a-z]{0,3}f|\s--force(?!-[wi])|\s[\"']?[+:]\w|\s--mirror|--delete|\s-d\b|\$)"
    r"|\b(?i:drop|truncate)\s{1,8}\w|\b(?i:delete)\s{1,8}(?i:from)\b|\b(?i:flush(?:all|db))\b|dropDatabase|\bdropdb\b"
    r"|\b(?:destroy|terminate-instances|unpublish|purge)\b|\bs3 r[bm]\b|\bgsutil\b|\bdelete[ -]|:destroy"
    r"|\bprune\b|\bkey-deletion\b|\bDELETE\b|\bvercel r|:(?:delete|remove|disable|wipe|fresh|reset|drop|purge)\b"
    r"|\b(?:migrate|force-|db) ?reset\b|\brailway d|\bs3cmd\b|\bmc r|\bmc --|\betcdctl\b|-recurse\b|\bsecrets disable\b"
    r"|\brabbitmqctl\b|--delete\b|\bdelete\Z|manage\.py (?:flush|reset_db)"
    r"|\becto\.|\bdrop(?:All|-all|all)?\b|\bflyway\b|\bdowngrade\b|\bsls\b|\bserverless\b|\bbq\b"
)

# Every line that `SIGN` matches contains one of these; a fast pre-check, but for odd capitals
_NEEDLES = (
    "push", "drop", "DROP", "trunc", "TRUNC", "delete", "DELETE", "Drop", "Delete", "Trunc", "flush", "FLUSH",
    "destroy", "terminate", "unpublish", "purge", "s3 r", "gsutil", "prune", "key-del", "vercel r", ":remove",
    ":disable", ":wipe", ":fresh", "reset", "railway d", "s3cmd", "mc r", "mc -", "etcdctl", "-recurse",
    "disable", "rabbitmqctl", "ecto.", "flyway", "downgrade", "sls ", "serverless", "bq ",
)  # fmt: skip


_PIECE_CHARS = 2_048
# Characters that a piece shares with the next: no match of an expression that is searched so is longer
_OVERLAP_CHARS = 512


def occurs(pattern: re.Pattern[str], text: str) -> bool:
    """Whether an expression matches anywhere in a text, which is searched in pieces.

    `re` holds the interpreter during a search, and an expression that looks far ahead takes 0.2 s for 64 KB.
    """
    if len(text) <= _PIECE_CHARS:
        return pattern.search(text) is not None
    return any(pattern.search(text, at, at + _PIECE_CHARS + _OVERLAP_CHARS) for at in range(0, len(text), _PIECE_CHARS))


@lru_cache(maxsize=4)
def has_sign(line: str) -> bool:
    """Whether a line contains anything that destroys beyond the machine; kept for the other commands of the line."""
    return any(map(line.__contains__, _NEEDLES)) and occurs(SIGN, line)


def may_destroy(name: str, words: Sequence[str], line: str) -> bool:
    """Whether one of `PROGRAMS` may destroy something, by its words and the line that it stands on."""
    if name == "git":
        return "push" in words and any(word[:1] in "-+:$\"'" for word in words[2:])
    return (name not in _INTERPRETERS or "manage.py" in line or "artisan" in line) and has_sign(line)


def destroyed_by(name: str, words: Sequence[str], given: str = "") -> tuple[str, str]:
    """Return what a command would destroy: kind and text; empty without any.

    Args:
        name: its command word.
        words: all its words.
        given: what it reads as its input, where the line says so.
    """
    if name == "git":
        return ("forced_push", found) if (found := _pushes_by_force(words)) else ("", "")
    if name in _CONTAINERS and "exec" in words[1:6]:
        at = next((at for at, word in enumerate(words) if word in _DATABASES), 0)
        return destroyed_by(words[at], words[at:], given) if at else ("", "")
    resources = _RESOURCES.get(name)
    if resources is not None and resources.match(" ".join(words[1:])[:_MAX_COMMAND_CHARS]):
        return ("", "") if _DRY.intersection(words) else ("resources", "destroy what others may use")
    schemas = _SCHEMAS.get(name)
    if schemas is not None and schemas.match(" ".join(words[1:])[:_MAX_COMMAND_CHARS]):
        return ("", "") if {*_DRY, "--sql"}.intersection(words) else ("database", "empty the database of a project")
    if name in _DATABASES and (found := _in_database(name, words, given)):
        return "database", found
    return "", ""


_VALUED_OF_GIT = frozenset({"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path"})
_VALUED_OF_PUSH = frozenset({"-o", "--push-option", "--receive-pack", "--exec", "--repo"})
_MAIN = frozenset({"main", "master", "trunk", "develop", "production", "prod", "release"})


def _pushes_by_force(words: Sequence[str]) -> str:
    """Return what a `git push` would do to its remote by force; empty if it is an ordinary one."""
    at = 1
    while at < len(words) and words[at][:1] == "-":
        at += 2 if words[at] in _VALUED_OF_GIT else 1
    if words[at : at + 1] not in (["push"], ("push",)):
        return ""
    forced = deletes = False
    operands: list[str] = []
    options = iter(words[at + 1 :])
    for word in options:
        if word[:1] != "-" or len(word) < 2:
            operands.append(word)
        elif word in _VALUED_OF_PUSH:
            next(options, "")
        elif word in {"--dry-run", "-n"}:
            return ""
        elif word in {"--force", "--mirror"} or (word[1] != "-" and word[:2] != "-o" and "f" in word):
            forced = True
        elif word == "--no-force":
            forced = False
        elif word in {"--delete", "-d"}:
            deletes = True
    if operands and operands[0].startswith(("/tmp/", "file:///tmp/")):  # noqa: S108 - a remote of a test
        return ""
    if forced or any(word[:1] == "+" and len(word) > 1 for word in operands[1:]):
        return "overwrite a remote branch by force"
    gone = operands[1:] if deletes else [word[1:] for word in operands[1:] if word[:1] == ":"]
    named = any(word.removeprefix("refs/heads/") in _MAIN for word in gone)
    return "delete the main branch of a remote" if named else ""


def _in_database(name: str, words: Sequence[str], given: str) -> str:
    """Return what a client of a database would destroy; empty if nothing."""
    operands = [word for word in words[1:] if word[:1] != "-"]
    if name == "dropdb":
        return "drop a database" if operands else ""
    if name == "mysqladmin":
        return "drop a database" if "drop" in operands else ""
    if name in {"redis-cli", "valkey-cli"}:
        return "empty a database" if {"FLUSHALL", "FLUSHDB"}.intersection(map(str.upper, operands)) else ""
    if name in {"sqlite3", "sqlite", "duckdb"} and (not operands or operands[0].startswith((":memory:", "/tmp/"))):  # noqa: S108
        return ""
    texts = [word.partition("=")[2] if word[:2] == "--" else word for word in words[1:]]
    texts += [word[2:] for word in words[1:] if word[:2] in {"-e", "-c", "-Q", "-q"} and len(word) > 2]
    return next((found for text in (*texts, given) if len(text) > 8 and (found := destroyed_by_sql(text))), "")


_NAME = r"[\w.\"`\[\]$-]{1,200}"
_DROP = re.compile(
    r"\s{0,40}DROP\s{1,40}(TABLE|DATABASE|SCHEMA|KEYSPACE|TABLESPACE)\s{1,40}(?:IF\s{1,40}EXISTS\s{1,40})?[\w\"`\[]",
    re.IGNORECASE,
)
_TRUNCATE = re.compile(
    rf"\s{{0,40}}TRUNCATE\s{{1,40}}(?:TABLE\s{{1,40}})?(?:ONLY\s{{1,40}})?{_NAME}\s{{0,40}}"
    r"(?:,|\(|\Z|RESTART\b|CONTINUE\b|CASCADE\b|RESTRICT\b)",
    re.IGNORECASE,
)
_DELETE = re.compile(
    rf"(?:\s{{0,40}}|.*[\s)])DELETE\s{{1,40}}FROM\s{{1,40}}(?:ONLY\s{{1,40}})?{_NAME}"
    r"(?:\s{1,40}(?:AS\s{1,40})?(?!WHERE\b|USING\b|RETURNING\b|LIMIT\b)\w{1,60})?\s{0,40}"
    r"(?:\Z|RETURNING\b|WHERE\s{1,40}\(?\s{0,8}(?:1\s{0,8}=\s{0,8}1|TRUE|1)\s{0,8}\)?\s{0,40}\Z)",
    re.IGNORECASE | re.DOTALL,
)
_DOCUMENTS = re.compile(r"\.dropDatabase\(|\.drop\(\s{0,8}\)|\.deleteMany\(\s{0,8}\{\s{0,8}\}\s{0,8}\)")
_MARK = re.compile(r"--|/\*|'|;")
_ROLLBACK = re.compile(r"\s{0,40}ROLLBACK\b", re.IGNORECASE)


def destroyed_by_sql(text: str) -> str:
    """Return what SQL statements, or calls of a document database, would destroy; empty if nothing."""
    text = text[:MAX_SQL_CHARS]
    lower = text.lower()
    if not ("drop" in lower or "delete" in lower or "truncate" in lower):
        return ""
    if _DOCUMENTS.search(text):
        return "drop or empty a collection"
    statements = _statements(text)
    if any(map(_ROLLBACK.match, statements)):
        return ""
    for statement in statements:
        if found := _DROP.match(statement):
            return f"drop a {found[1].lower()}"
        if _TRUNCATE.match(statement):
            return "empty a table"
        opening = statement.lstrip()[:8].upper()
        if opening.startswith(("DELETE", "WITH")) and _DELETE.match(statement):
            return "delete every row of a table"
    return ""


def _statements(text: str) -> list[str]:
    """Return the statements of a text without comments; texts in quotes are empty ones."""
    statements: list[str] = []
    parts: list[str] = []
    at = 0
    while (mark := _MARK.search(text, at)) is not None:
        parts.append(text[at : mark.start()])
        at = mark.end()
        if mark[0] == ";":
            statements.append("".join(parts).strip())
            parts = []
            continue
        ending = {"--": "\n", "/*": "*/"}.get(mark[0], "'")
        end = text.find(ending, at)
        parts.append("''" if ending == "'" else " ")
        at = len(text) if end < 0 else end + len(ending)
    parts.append(text[at:])
    return [*statements, "".join(parts).strip()]


_STATEMENT_ARGS = frozenset({"sql", "statement", "statements", "sql_query", "sqlQuery", "query_sql", "ddl"})
_TEXT_ARGS = _STATEMENT_ARGS | {"query", "queries", "q", "command", "text", "input", "script", "code", "operation"}
_OF_DATABASE = re.compile(
    r"(?:^|[^a-z])(?:my|postgre?|no|ms|pg|t)?(?:sql(?:ite)?|postgres|pg|mysql|mariadb|duckdb|db|database|databases|bigquery"
    r"|snowflake|clickhouse|supabase|neon|redshift|oracle|cockroach|mongo(?:db)?|cassandra|athena|databricks|planetscale)"
    r"(?:[^a-z]|$)"
)
_DROPPING = re.compile(r"(?:^|[^a-z])drop[^a-z]?(?:database|collection|table|schema)s?(?:[^a-z]|$)")


@lru_cache(maxsize=4096)
def _of_database(tool_name: str) -> tuple[bool, bool]:
    """Return whether a tool is a database's by its name, and whether its name says that it drops something."""
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", tool_name[:256]).lower()
    return _OF_DATABASE.search(name) is not None, _DROPPING.search(name) is not None


def destroyed_by_tool(tool_name: str, args: Mapping[str, Any]) -> str:
    """Return what a call of a database's tool would destroy; empty if nothing, or if it is no such tool."""
    of_database, drops = _of_database(tool_name)
    if drops:
        return "drop a table or database"
    names = _TEXT_ARGS if of_database else _STATEMENT_ARGS
    for name, value in args.items():
        if name in names and (found := next(filter(None, map(destroyed_by_sql, _texts(value))), "")):
            return found
    return ""


def _texts(value: Any) -> Iterable[str]:
    """Return the texts of an argument: a text, or the first of a list of texts."""
    if isinstance(value, str):
        return (value,)
    return [one for one in value[:20] if isinstance(one, str)] if isinstance(value, list) else ()
