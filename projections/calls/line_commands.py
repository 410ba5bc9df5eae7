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
    --node-options -s --signal -o --output --runs --warmup --workspace-folder""".split()
)

_RUNS = {
    # subcommands that run a command, with the number of operands before it -> programs that have them
    "run:1 exec:1": "docker podman nerdctl lxc ctr docker-compose podman-compose",
    "exec:1 run:1 debug:1": "kubectl oc k3s microk8s apptainer singularity",
    "exec:0 dlx:0 x:0": "npm pnpm yarn bun mise asdf",
    "run:0 exec:0": "uv poetry pipenv rye hatch pdm pixi pipx conda mamba micromamba bundle op doppler heroku dotenv"
    " rbenv pyenv infisical devbox railway toolbox devcontainer",
    "exec:1": "direnv aws-vault multipass incus chamber",
    "enter:1": "distrobox",
    "shell:0": "adb",
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
    """npx yarn dotenv retry lima srun mpirun mpiexec torchrun dumb-init tini flatpak-spawn bwrap invoke-expression iex
    bunx pnpx uvx dotenvx wsl wsl.exe entr watchexec nodemon hyperfine numactl cgexec prlimit eatmydata
    proxychains proxychains4 torsocks faketime catchsegv gdb lldb start start-process saps setpriv linux32 linux64
    rlwrap env-cmd cross-env concurrently expect nix-shell sg mosh winpty daemonize xargs fd fdfind chpst setlock
    multitime batch""".split()
)
_AFTER_ONE = frozenset({"script", "s6-setuidgid", "setuidgid"})  # The same, of whose operands the second is the command
_TWO_VALUES = frozenset({"--bind", "--ro-bind", "--dev-bind", "--setenv", "--symlink"})
_NUMBER = re.compile(r"\d[\d.:-]*[smhd%]?\Z")  # Operands of `retry 3`, `faketime 2020-01-01`
_BRACES = re.compile(r"(^|[;|&(\n]\s{0,8})([\w./-]{0,64})\{([\w.-]{0,64}),([\w.,-]{0,64})\}")  # `deploy{ctl,}`
# In PowerShell: names of variables, what they are set to, a program that is run by its name, and an escape
_SET_TEXT = re.compile(r"\$(\w+)\s{0,8}=\s{0,8}(?=['\"])")
_SET = re.compile(r"\$\w+\s{0,8}=\s{0,8}")
_DOT = re.compile(r"(^|[;{\n])\s{0,8}\.\s")
_TICK = re.compile(r"`(?=\w)")
_WINDOWS_PROGRAM = re.compile(r"([\w.+-]+?)(?:\.(?:exe|cmd|bat|com|ps1))?\Z", re.IGNORECASE)

# Options whose value is a command, or a line of commands
_GIVES_COMMAND = re.compile(
    r"(?:-exec|-execdir|-ok|-okdir|-x|-X|--exec|--exec-batch|-c|--call|--command|--run|--cmd|-ex|-e|--args|--to-command"
    r"|--entrypoint|-FilePath|--checkpoint-action=exec)\Z"
)

_INLINE = re.compile(r"(?:--(?:exec|command|run|call|to-command|entrypoint)|--checkpoint-action=exec)=(.+)", re.DOTALL)
_WITH_COMMAND = _PLAIN | _AFTER_ONE | _SUBCOMMANDS.keys() | set("find tar rsync runuser su gcloud fly flyctl".split())


def commands_of(line: str, *, windows: bool = False) -> tuple[str, ...]:
    """Return the names of all commands that a line would run, in order, without directories."""
    return _commands_of(line, windows) if len(line) <= _CACHED_CHARS else _commands_in(line, windows, 0)


_CACHED_CHARS = 4096


@lru_cache(maxsize=1024)
def _commands_of(line: str, windows: bool) -> tuple[str, ...]:  # noqa: FBT001 - a keyword slows the cache
    return _commands_in(line, windows, 0)


def _commands_in(line: str, windows: bool, depth: int) -> tuple[str, ...]:  # noqa: FBT001 - as above
    if windows:
        line = _DOT.sub(r"\1& ", _SET.sub("", _SET_TEXT.sub(r"\1=", _TICK.sub("", line.replace("\\", "/")))))
    line = _BRACES.sub(r"\1\2\3 \4", line)
    names: dict[str, None] = dict.fromkeys(read(line).programs)
    for step in steps_of(line):
        names[step.name] = None
        for inner in _lines_of(step) if depth < _MAX_DEPTH and step.name.lower() in _WITH_COMMAND else ():
            names |= dict.fromkeys(_commands_in(inner, False, depth + 1))  # noqa: FBT003 - as above
        if len(names) > MAX_NAMES:
            break
    if windows:  # names of files have no case, and need no ending
        names |= {found[1].lower(): None for name in names if (found := _WINDOWS_PROGRAM.match(name))}
    return tuple(name for name in names if _NAME.match(name))[:MAX_NAMES]


def _lines_of(step: UnfoldedCommand) -> list[str]:
    """Return the lines that a program runs: after its own words, and in its options."""
    words = [unquoted(word) for word in step.words]
    rest: Sequence[str] = words[1:]
    found = []
    for at, word in enumerate(rest):
        if inline := _INLINE.match(word):
            found.append(inline[1])
        elif at + 1 < len(rest) and (_GIVES_COMMAND.match(word) or (word == "-C" and step.name in {"fly", "flyctl"})):
            ends = (place for place, each in enumerate(rest) if place > at and each in {";", "+", "--"})
            found.append(_line(rest[at + 1 : next(ends, len(rest))]))
    subcommands = _SUBCOMMANDS.get(step.name)
    if subcommands is not None:
        at = next((at for at, word in enumerate(rest[:6]) if word in subcommands), -1)
        if at < 0 and step.name not in _PLAIN:
            return found
        operands, rest = (0, rest) if at < 0 else (subcommands[rest[at]], rest[at + 1 :])
    elif step.name.lower() in _PLAIN | _AFTER_ONE:
        operands = int(step.name in _AFTER_ONE)
    else:
        return found
    if "--" in rest and step.name != "nix":
        return [*found, _line(rest[rest.index("--") + 1 :])]
    rest = _operands(rest)
    for _ in range(operands):
        rest = _operands(rest[1:])
    return [*found, _line(rest)]


def _operands(words: Sequence[str]) -> Sequence[str]:
    """Return the words after options."""
    while words and (words[0][:1] == "-" or _NUMBER.match(words[0])):
        words = words[3 if words[0] in _TWO_VALUES else 2 if words[0] in _VALUED else 1 :]
    return words


def _line(words: Sequence[str]) -> str:
    """Return the line of some words: a single one is a line as it stands."""
    if not words:
        return ""
    if len(words) == 1:
        return words[0].partition("@")[0] if _AT_VERSION.match(words[0]) else words[0]
    first = words[0].partition("@")[0].rpartition("#")[2] or words[0]  # `package@version`, `nixpkgs#package`
    if first.rpartition("/")[2] in SHELLS or " " not in first:
        return shlex.join([first, *words[1:]])
    return " ".join(words)
