"""All commands that a line would run, by name, for the check of a call before it runs (docs/trust.md, Scopes).

A fold names a line by one command, for its evidence; a check asks about every command in it, so that none hides behind
another one. Beside what `unfold` reads, these run commands without any danger of their own: runners of packages
(`npx`), containers (`docker exec`), and options of programs (`find -exec`).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from functools import lru_cache

from .command_line import read
from .shell import SHELLS
from .unfold import UnfoldedCommand, steps_of, unquoted

MAX_NAMES = 64  # Largest number of different commands of a line that are asked about

_MAX_DEPTH = 4
_NAME = re.compile(r"[\w.+@%-]{1,64}\Z")
_AT_VERSION = re.compile(r"[\w.-]+@[\w.^~-]+\Z")
# Options of runners and containers that take a value of their own
_VALUED = frozenset(
    """-v --volume --mount -e --env -w --workdir -u --user --name --network --entrypoint -p --publish --package
    --platform -h --hostname --env-file -l --label -m --memory --cpus --add-host -c --container -n --namespace -f --file
    --from --with --python --context --profile --kubeconfig -j --jobs -d --directory -C --prefix --filter --scale
    --node-options -s --signal -o --output -r --runs --warmup""".split()
)

_RUNS = {
    # subcommands that run a command, with the number of operands before it -> programs that have them
    "run:1 exec:1": "docker podman nerdctl lxc ctr docker-compose podman-compose",
    "exec:1 run:1 debug:1": "kubectl oc k3s microk8s",
    "exec:0 dlx:0 x:0": "npm pnpm yarn bun mise asdf",
    "run:0 exec:0": "uv poetry pipenv rye hatch pdm pixi pipx conda mamba bundle op doppler heroku dotenv",
    "exec:1": "direnv aws-vault multipass",
    "run:0 shell:0 develop:0": "nix",
    "run:0 foreach:0": "git",
    "stat:0 record:0": "perf",
    "ssh:0": "vagrant minikube",
}
_SUBCOMMANDS = {
    program: {name: int(operands) for name, _, operands in (one.partition(":") for one in row.split())}
    for row, programs in _RUNS.items()
    for program in programs.split()
}
# Programs whose first operand, or an option of which, is a command
_PLAIN = frozenset(
    """npx bunx pnpx uvx dotenvx wsl wsl.exe entr watchexec nodemon hyperfine numactl cgexec prlimit eatmydata
    proxychains proxychains4 torsocks faketime catchsegv gdb lldb start start-process saps setpriv linux32 linux64
    rlwrap env-cmd cross-env concurrently expect nix-shell sg mosh winpty daemonize xargs fd fdfind chpst setlock
    multitime batch""".split()
)

# Options whose value is a command, or a line of commands
_GIVES_COMMAND = re.compile(
    r"(?:-exec|-execdir|-ok|-okdir|-x|-X|--exec|--exec-batch|-c|--call|--command|--run|--cmd|-ex|-e|--args|--to-command"
    r"|--entrypoint|-FilePath|--checkpoint-action=exec)\Z"
)

_INLINE = re.compile(r"(?:--(?:exec|command|run|call|to-command|entrypoint)|--checkpoint-action=exec)=(.+)", re.DOTALL)
_WITH_COMMAND = _PLAIN | _SUBCOMMANDS.keys() | {"find", "tar", "script", "rsync", "runuser", "su"}


def commands_of(line: str, *, windows: bool = False) -> tuple[str, ...]:
    """Return the names of all commands that a line would run, in order, without directories."""
    return _commands_of(line, windows) if len(line) <= _CACHED_CHARS else _commands_in(line, windows, 0)


_CACHED_CHARS = 4096


@lru_cache(maxsize=1024)
def _commands_of(line: str, windows: bool) -> tuple[str, ...]:  # noqa: FBT001 - a keyword slows the cache
    return _commands_in(line, windows, 0)


def _commands_in(line: str, windows: bool, depth: int) -> tuple[str, ...]:  # noqa: FBT001 - as above
    line = line.replace("\\", "/") if windows else line
    names: dict[str, None] = dict.fromkeys(read(line).programs)
    for step in steps_of(line):
        names[step.name] = None
        for inner in _lines_of(step) if depth < _MAX_DEPTH and step.name.lower() in _WITH_COMMAND else ():
            names |= dict.fromkeys(_commands_in(inner, False, depth + 1))  # noqa: FBT003 - as above
        if len(names) > MAX_NAMES:
            break
    return tuple(name for name in names if _NAME.match(name))[:MAX_NAMES]


def _lines_of(step: UnfoldedCommand) -> list[str]:
    """Return the lines that a program runs: after its own words, and in its options."""
    words = [unquoted(word) for word in step.words]
    rest: Sequence[str] = words[1:]
    found = []
    for at, word in enumerate(rest):
        if inline := _INLINE.match(word):
            found.append(inline[1])
        elif _GIVES_COMMAND.match(word) and at + 1 < len(rest):
            ends = (place for place, each in enumerate(rest) if place > at and each in {";", "+", "--"})
            found.append(_line(rest[at + 1 : next(ends, len(rest))]))
    subcommands = _SUBCOMMANDS.get(step.name)
    if subcommands is not None:
        at = next((at for at, word in enumerate(rest[:6]) if word in subcommands), -1)
        if at < 0:
            return found
        operands, rest = subcommands[rest[at]], rest[at + 1 :]
    elif step.name.lower() in _PLAIN:
        operands = 0
    else:
        return found
    if "--" in rest:
        return [*found, _line(rest[rest.index("--") + 1 :])]
    rest = _operands(rest)
    for _ in range(operands):
        rest = _operands(rest[1:])
    return [*found, _line(rest)]


def _operands(words: Sequence[str]) -> Sequence[str]:
    """Return the words after options."""
    while words and words[0][:1] == "-":
        words = words[2:] if words[0] in _VALUED else words[1:]
    return words


def _line(words: Sequence[str]) -> str:
    """Return the line of some words: a single one is a line as it stands."""
    if not words:
        return ""
    if len(words) == 1:
        return words[0].partition("@")[0] if _AT_VERSION.match(words[0]) else words[0]
    first = words[0].partition("@")[0] or words[0]
    if first.rpartition("/")[2] in SHELLS or " " not in first:
        return shlex.join([first, *words[1:]])
    return " ".join(words)
