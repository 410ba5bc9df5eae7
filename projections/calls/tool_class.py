"""Classifies calls: does a call read, act, list tools, plan, or wait? (docs/classification.md).

Configuration first, then MCP annotations on the event, then the name and the arguments; shell tools by the commands of
their line. What is not known stays unknown: it may have changed something, and it is never known to have acted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from ...schemas.vocabulary import ToolClass
from .shell import SimpleCommand

_WORDS = re.compile(r"[A-Z]{1,64}(?![a-z])|[A-Z]?[a-z]+|\d+")

_READ = frozenset(
    """read get list search find view show fetch query grep glob ls cat head tail describe lookup inspect
    browse scan count diff retrieve load open calculate analyze analyse peek stat""".split()
)
_ACTION = frozenset(
    """write edit update create delete remove move rename apply patch insert replace append set send post put
    commit push install save book cancel modify multiedit notebookedit upload publish deploy merge add submit
    transfer restart start stop kill mkdir touch click type fill exchange return str overwrite rewrite change assign
    enable disable archive approve reject""".split()
)
_PLANNING = frozenset("plan todo todos think thought planner planning reason reflect".split())
_POLL = frozenset("poll wait await sleep wakeup status progress".split())
# What runs on, so that its output is looked at to wait for it: `get_terminal_output`
_RUNNING = frozenset("bash shell terminal command process task agent job build background session".split())

_PAUSES = frozenset("sleep wakeup".split())
_TOOL_WORDS = frozenset("tool tools toolset schema schemas capability capabilities skills".split())
_EXACT = {
    "askpermission": ToolClass.INTROSPECTION,
    "toolsearch": ToolClass.INTROSPECTION,
    "read_bash": ToolClass.POLL,
    "read_powershell": ToolClass.POLL,
    "exitplanmode": ToolClass.PLANNING,
    "enterplanmode": ToolClass.PLANNING,
    "task": ToolClass.UNKNOWN,
    "agent": ToolClass.UNKNOWN,
}

_READ_COMMANDS = frozenset(
    """ls cat grep egrep fgrep rg ag head tail wc less more find fd tree stat file du df pwd echo printf which
    whereis type env printenv date whoami id uname hostname ps top sort uniq cut tr awk gawk jq yq column diff
    cmp md5sum sha1sum sha256sum basename dirname realpath readlink nl od xxd strings seq test [ true false cd
    history man tac comm join paste expr bat command type pgrep lsof""".split()
)
_ACTION_COMMANDS = frozenset(
    """rm mv cp mkdir rmdir touch tee ln chmod chown truncate dd patch install unzip tar rsync kill pkill
    docker-compose systemctl service apt apt-get brew make-install sponge apply_patch applypatch""".split()
)
_READ_SUBCOMMANDS = {
    "git": frozenset(
        """status log diff show branch blame grep ls-files ls-tree rev-parse describe remote config reflog
        shortlog cat-file fetch rev-list merge-base for-each-ref worktree""".split()
    ),
    "gh": frozenset("view list status checks diff search".split()),
    "docker": frozenset("ps images logs inspect version info".split()),
    "kubectl": frozenset("get describe logs version".split()),
    "npm": frozenset("ls list view outdated".split()),
    "pip": frozenset("list show freeze check".split()),
    "go": frozenset("list version env doc".split()),
    "cargo": frozenset("tree metadata search".split()),
}
_ACTION_SUBCOMMANDS = {
    "git": frozenset(
        """add commit push checkout switch merge rebase reset stash pull rm mv restore cherry-pick revert tag
        clone init apply am""".split()
    ),
    "gh": frozenset("create merge close edit comment review delete".split()),
    "npm": frozenset("install i ci uninstall update publish".split()),
    "pip": frozenset("install uninstall".split()),
    "cargo": frozenset("add install remove publish".split()),
    "go": frozenset("get install mod".split()),
}

# Words by which a program that reads writes a file
_WRITING_WORDS = {
    "yq": frozenset({"-i", "--inplace"}),
    "awk": frozenset({"inplace"}),
    "gawk": frozenset({"inplace"}),
    "sort": frozenset({"-o", "--output"}),
    "xxd": frozenset({"-r"}),
    "history": frozenset({"-c"}),
}

# Words by which a subcommand that reads changes something
_CHANGING_WORDS = {
    ("git", "branch"): frozenset("-d -D -m -M -c -C -f -u --delete --move --copy --force --set-upstream-to".split()),
    ("git", "remote"): frozenset("add remove rm rename set-url set-head prune update".split()),
    ("git", "config"): frozenset("set unset --add --unset --unset-all --replace-all --edit".split()),
    ("git", "worktree"): frozenset("add remove move prune lock unlock repair".split()),
    ("git", "reflog"): frozenset("expire delete".split()),
    ("go", "env"): frozenset({"-w", "-u"}),
}

_READ_CMDLETS = "Get Test Select Measure Find Show Compare Resolve Where Sort Group Format ConvertTo ConvertFrom Read"
_ACTION_CMDLETS = """Remove Set New Add Clear Copy Move Rename Start Stop Restart Install Uninstall Update Enable
    Disable Export Import Publish Save Expand Compress Push"""
_CMDLET = re.compile(r"([A-Z][A-Za-z]+)-[A-Z][A-Za-z]*\Z")
# Verbs of PowerShell's cmdlets (`Get-Content`), as they are written: with capitals, unlike any POSIX command
_BY_VERB = {
    **dict.fromkeys(_READ_CMDLETS.split(), ToolClass.READ),
    **dict.fromkeys(_ACTION_CMDLETS.split(), ToolClass.ACTION),
}

_WINDOWS_COMMANDS = {
    **dict.fromkeys("dir findstr where tasklist systeminfo gci gc sls".split(), ToolClass.READ),
    **dict.fromkeys(
        "del erase rd ri ni md copy xcopy robocopy move ren rename taskkill setx attrib icacls".split(),
        ToolClass.ACTION,
    ),
}

_WAITING = frozenset("sleep usleep wait watch inotifywait wait-for-it wait-for-it.sh Start-Sleep".split())
_FOLLOWING = frozenset({"--watch", "--follow", "--wait"})
# Words by which a program waits for more, beside those that every program shares
_FOLLOWING_OF = {
    "tail": frozenset({"-f", "-F"}),
    "journalctl": frozenset({"-f"}),
    "gh": frozenset({"watch"}),
    "kubectl": frozenset({"-w", "wait"}),
    "docker": frozenset({"wait"}),
    "aws": frozenset({"wait"}),
    "az": frozenset({"wait"}),
}

# One of these stands in every command that follows
_MAY_FOLLOW = _FOLLOWING.union(*_FOLLOWING_OF.values(), ("-f", "rollout"))

_SILENT = _WAITING | {"echo", "printf", "true", "date", ":", ""}  # Commands beside which a wait is no look at anything

_DOWNLOAD_WRITES = frozenset(
    """-d --data --data-raw --data-binary --data-urlencode --json -F --form -T --upload-file -o -O --output
    --remote-name --post-data --post-file""".split()
)
_HTTP_CHANGES = frozenset("POST PUT DELETE PATCH".split())
_NONE: frozenset[str] = frozenset()
_DATABASES = frozenset("psql mysql mariadb sqlite3 duckdb sqlcmd clickhouse-client".split())
_FIND_RUNS = frozenset("-exec -execdir -ok -okdir".split())
_SQL_WORDS = frozenset("sql database db".split())
_SQL_READS = re.compile(r"\s{0,20}\(*\s{0,20}(?:select|show|describe|desc|explain|pragma|with)\b", re.IGNORECASE)
_SQL_ACTS = re.compile(
    r"\s{0,20}(?:insert|update|delete|merge|upsert|replace|truncate|create|alter|drop|grant|revoke)\b", re.IGNORECASE
)
_LOOKS = frozenset("scroll goto page screenshot snapshot hover observe".split())
# Arguments that hold what a tool is asked for, where it is no command line
QUERY_ARGS = ("query", "sql", "statement", "code", "script", "input")

# Commands that are classified by their name alone
_BY_COMMAND = {
    **_WINDOWS_COMMANDS,
    **dict.fromkeys(_WAITING, ToolClass.POLL),
    **dict.fromkeys(_READ_COMMANDS - {"find"}, ToolClass.READ),
    **dict.fromkeys(_ACTION_COMMANDS, ToolClass.ACTION),
}


@lru_cache(maxsize=4096)
def class_by_name(tool_name: str) -> ToolClass:
    """Return the class that a tool's name suggests, without the server of an MCP tool's name."""
    plain = tool_name.rsplit("__", 1)[-1]
    exact = _EXACT.get(plain.lower())
    if exact is not None:
        return exact
    words = [word.lower() for word in _WORDS.findall(plain)]
    if not words:
        return ToolClass.UNKNOWN
    if _TOOL_WORDS.intersection(words) and (words[0] in _READ or words[0] in _TOOL_WORDS):
        return ToolClass.INTROSPECTION
    if _PLANNING.intersection(words):
        return ToolClass.PLANNING
    for place, word in enumerate(words):
        if word in _ACTION:
            return ToolClass.ACTION
        if word in _POLL or (word in _RUNNING and words[place + 1 : place + 2] == ["output"]):
            return ToolClass.POLL
        if word in _READ:
            return _class_of_read(words[place + 1 :])
    return ToolClass.UNKNOWN


def _class_of_read(rest: list[str]) -> ToolClass:
    """Class of a name that begins with reading, by the words that follow: `find_and_replace`, `get_or_create`."""
    if rest[:1] == ["replace"]:
        return ToolClass.ACTION
    if rest[:1] in (["and"], ["or"]) and rest[1:]:
        return ToolClass.ACTION if rest[1] in _ACTION else ToolClass.READ if rest[1] in _READ else ToolClass.UNKNOWN
    running = len(rest) > 1 and rest[-1] == "output" and rest[-2] in _RUNNING
    return ToolClass.POLL if running else ToolClass.READ


def _class_of(command: SimpleCommand) -> ToolClass:
    if command.writes:
        return ToolClass.ACTION
    name = command.name
    if (plain := _BY_COMMAND.get(name)) is not None:
        return ToolClass.ACTION if not _WRITING_WORDS.get(name, _NONE).isdisjoint(command.words) else plain
    if "-" in name and name[:1].isupper() and (cmdlet := _CMDLET.match(name)) is not None:
        if name in {"Out-File", "Tee-Object"}:
            return ToolClass.ACTION
        return _BY_VERB.get(cmdlet.group(1), ToolClass.READ if name.startswith("Out-") else ToolClass.UNKNOWN)
    subcommand = next((word for word in command.words[1:] if not word.startswith("-")), "")
    if name == "gh" and subcommand:
        verbs = [word for word in command.words[1:4] if not word.startswith("-")]
        subcommand = verbs[1] if len(verbs) > 1 else subcommand
    if name in {"sed", "perl"}:
        in_place = any(word.startswith("-i") or word == "--in-place" for word in command.words[1:])
        return ToolClass.ACTION if in_place else ToolClass.READ if name == "sed" else ToolClass.UNKNOWN
    if name == "find":
        return _class_of_find(command)
    if name in {"curl", "wget", "http", "httpie"}:
        return _class_of_download(command)
    if name in _DATABASES:
        return _class_of_sql(command.words[1:])
    if subcommand == "status" or subcommand in _READ_SUBCOMMANDS.get(name, ()):
        changes = _CHANGING_WORDS.get((name, subcommand), _NONE)
        return ToolClass.READ if changes.isdisjoint(command.words) else ToolClass.ACTION
    if subcommand in _ACTION_SUBCOMMANDS.get(name, ()):
        return ToolClass.ACTION
    return ToolClass.UNKNOWN


def _class_of_sql(words: Sequence[str]) -> ToolClass:
    """Class of a client of a database by the statements that its words hold; unknown without any, as by a file."""
    texts = [word.partition("=")[2] if word.startswith("--") else word for word in words]
    statements = [part for text in texts if " " in text for part in text.split(";") if part.strip()]
    if any(map(_SQL_ACTS.match, statements)):
        return ToolClass.ACTION
    return ToolClass.READ if statements and all(map(_SQL_READS.match, statements)) else ToolClass.UNKNOWN


def _class_of_find(command: SimpleCommand) -> ToolClass:
    """Class of a `find`: that of the command which it runs for each file, if any."""
    words = command.words
    if "-delete" in words:
        return ToolClass.ACTION
    for position, word in enumerate(words):
        if word in _FIND_RUNS and position + 1 < len(words):
            inner = words[position + 1 :]
            return _class_of(SimpleCommand(inner, (), "", inner[0].rpartition("/")[2]))
    return ToolClass.READ


def _class_of_download(command: SimpleCommand) -> ToolClass:
    """Class of a request by HTTP: it reads if it sends no data and its output goes to the terminal."""
    words = command.words
    if command.name == "wget":
        shown = any(word in {"-qO-", "-O-", "--spider", "-"} for word in words)
        return ToolClass.READ if shown else ToolClass.UNKNOWN
    changes = _DOWNLOAD_WRITES.intersection(words) or any(word.upper() in _HTTP_CHANGES for word in words)
    return ToolClass.UNKNOWN if changes else ToolClass.READ


def class_of_commands(commands: Sequence[SimpleCommand], *, waits: bool = False) -> ToolClass:
    """Return the class of a command line.

    Action if any command acts, read only if every command reads; a line that waits and otherwise reads is a poll.
    """
    found = {_class_of(command) for command in commands}
    if ToolClass.ACTION in found:
        return ToolClass.ACTION
    if not found or ToolClass.UNKNOWN in found:
        return ToolClass.UNKNOWN
    return ToolClass.POLL if waits or ToolClass.READ not in found else ToolClass.READ


def waiting(commands: Sequence[SimpleCommand]) -> tuple[bool, bool]:
    """Whether a line waits for something, and whether it does nothing else."""
    for command in commands:
        if command.name in _WAITING or _follows(command):
            return True, all(one.name in _SILENT for one in commands)
    return False, False


_EDITORS = frozenset({"sed", "perl", "patch", "apply_patch", "applypatch", "tee", "ed"})


def edits_first(commands: Sequence[SimpleCommand]) -> bool:
    """Whether a line edits a file and then runs something: `sed -i … && pytest`, `cat > a.py <<… ; python a.py`."""
    return any(
        (command.writes or command.name in _EDITORS) and _class_of(command) is ToolClass.ACTION
        for command in commands[:-1]
    )


def _follows(command: SimpleCommand) -> bool:
    """Whether a program waits for more: `tail -f`, `logs -f`, `rollout status`."""
    words = command.words
    if _MAY_FOLLOW.isdisjoint(words):
        return False  # the usual case
    if not _FOLLOWING.isdisjoint(words) or not _FOLLOWING_OF.get(command.name, _FOLLOWING).isdisjoint(words):
        return True
    return ("logs" in words and "-f" in words) or words[1:3] == ("rollout", "status")


def class_by_annotations(annotations: Mapping[str, Any]) -> ToolClass | None:
    """Class declared by MCP hints: `readOnlyHint` reads; `destructiveHint` or an explicit not-read-only acts."""
    read_only = annotations.get("readOnlyHint", annotations.get("read_only_hint"))
    if read_only is True:
        return ToolClass.READ
    if read_only is False or annotations.get("destructiveHint", annotations.get("destructive_hint")) is True:
        return ToolClass.ACTION
    return None


_ACTION_WORD_ARGS = ("action", "operation", "op", "subcommand", "method")
_HTTP_METHODS = {"get": ToolClass.READ, "head": ToolClass.READ, "options": ToolClass.READ}


def class_by_args(args: Mapping[str, Any]) -> ToolClass:
    """Return the class named by an `action`-like argument (`{"action": "poll"}`, `{"method": "POST"}`)."""
    for name in _ACTION_WORD_ARGS:
        word = args.get(name)
        if isinstance(word, str) and word:
            lower = word.lower()
            return _HTTP_METHODS.get(lower) or class_by_name(lower)
    return ToolClass.UNKNOWN


def class_of_tool(tool_name: str, args: Mapping[str, Any]) -> ToolClass:
    """Return the class of a call of a tool that runs no command line, by its name, then by its arguments."""
    plain = tool_name.rsplit("__", 1)[-1].lower()
    if plain == "write_stdin":
        return ToolClass.UNKNOWN if args.get("chars") else ToolClass.POLL
    if plain == "str_replace_editor":
        return ToolClass.READ if args.get("command") == "view" else ToolClass.ACTION
    named = class_by_name(tool_name)
    if named is not ToolClass.UNKNOWN or not args:
        return named
    named = class_by_args(args)
    if named is not ToolClass.UNKNOWN:
        return named
    words = _words_of(tool_name)
    if not _SQL_WORDS.isdisjoint(words):
        query = next((text for name in QUERY_ARGS if isinstance(text := args.get(name), str)), "")
        if _SQL_READS.match(query):
            return ToolClass.READ
        return ToolClass.ACTION if _SQL_ACTS.match(query) else ToolClass.UNKNOWN
    return ToolClass.UNKNOWN if _LOOKS.isdisjoint(words) else ToolClass.READ


def reads_by_sql(query: str) -> bool:
    """Whether a query begins as one of SQL that reads."""
    return _SQL_READS.match(query) is not None


@lru_cache(maxsize=4096)
def _words_of(tool_name: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _WORDS.findall(tool_name))


_ASKING = re.compile(
    r"ask_?(?:user|human|followup|question)|exit_?plan_?mode|(?:request_)?(?:user|human)_?input|\Aquestion\Z"
)


@lru_cache(maxsize=4096)
def asks_person(tool_name: str) -> bool:
    """Whether a tool asks a person and waits for the answer."""
    return _ASKING.match(tool_name.rsplit("__", 1)[-1].lower()) is not None


_DELEGATING = re.compile(
    r"(?:task|agent|sub_?agent|(?:spawn|dispatch|run|call)_?(?:sub_?)?agent|delegate(?:_?task)?)\Z"
)


@lru_cache(maxsize=4096)
def delegates(tool_name: str) -> bool:
    """Whether a tool hands the work to another agent, which may take its time."""
    return _DELEGATING.match(tool_name.rsplit("__", 1)[-1].lower()) is not None


_MOVING = frozenset(
    """press keypress keystroke scroll swipe next previous prev undo redo step roll flip shuffle pop dequeue increment
    decrement increase decrease more plus minus advance rewind tick zoom""".split()
)
_DIRECTIONS = frozenset("up down left right back forward in out over into key keys".split())
_MOVED = frozenset("move volume page turn arrow cursor dpad brightness go send temperature".split())
_MOVING_ARGS = re.compile(
    rb'"(?:action|operation|op|subcommand|method|service|event|type|element|button)":"([^"\\]{1,64})"'
)


def moves_on(tool_name: str, shown: bytes = b"") -> bool:
    """Whether each call moves something on by one, by its name or by what its arguments name: a key, a step, undo.

    `shown` are its arguments as JSON. An equal answer of such a call does not say that nothing has changed.
    """
    if _is_move(tool_name.rsplit("__", 1)[-1]):
        return True
    found = _MOVING_ARGS.search(shown)
    return found is not None and (found[1] == b"key" or _is_move(found[1].decode(errors="replace")))


@lru_cache(maxsize=4096)
def _is_move(name: str) -> bool:
    words = _words_of(name)
    return not _MOVING.isdisjoint(words) or not (_DIRECTIONS.isdisjoint(words) or _MOVED.isdisjoint(words))


def only_waits(tool_name: str) -> bool:
    """Whether a tool only lets time pass, so that its result tells nothing."""
    return not _PAUSES.isdisjoint(_words_of(tool_name))
