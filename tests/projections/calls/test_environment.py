"""What failures say is missing around a tool, and which success shows that it is there again."""

from __future__ import annotations

from typing import Any

import pytest
from trustfold.projections.calls.environment import MissingPart, is_loopback, missing_in, restored_by
from trustfold.schemas.vocabulary import FailureSeverity


def missing(message: str, request: str = "", **given: Any) -> str:
    """What a message says is missing, as `kind name`; empty for nothing."""
    word = request[:80].split(maxsplit=1)[0] if request.strip() else ""
    known = {"tool_name": "Bash", "command_word": word, "service": "", "severity": FailureSeverity.VALIDATION} | given
    found = missing_in(message, request=request, **known)
    return f"{found.kind} {found.name}" if found else ""


@pytest.mark.parametrize(
    ("message", "name"),
    [
        ("bash: line 1: psql: command not found", "psql"),
        ("/usr/bin/bash: line 12: golangci-lint: command not found", "golangci-lint"),
        ("zsh:1: command not found: vercel", "vercel"),
        ("(eval):1: command not found: docker", "docker"),
        ("sh: 1: tsc: not found", "tsc"),
        ("/bin/sh: node: not found", "node"),
        ("fish: Unknown command: rg", "rg"),
        ("env: node: No such file or directory", "node"),
        ("/usr/bin/env: ‘python’: No such file or directory", "python"),
        ("'make' is not recognized as an internal or external command,", "make"),
        ("The term 'uv' is not recognized as the name of a cmdlet", "uv"),
        ("bash: terraform : commande introuvable", "terraform"),
        ("bash: go: comando não encontrado", "go"),
        ("bash: 行 1: cargo: 未找到命令", "cargo"),
        ('Der Befehl "git" ist entweder falsch geschrieben oder\nkonnte nicht gefunden werden.', "git"),
        ("'dotnet' n'est pas reconnu en tant que commande interne", "dotnet"),
        ('exec: "protoc": executable file not found in $PATH', "protoc"),
        ("make: go: No such file or directory", "go"),
        ("make[1]: cc: Command not found", "cc"),
        ("error: linker `cc` not found", "cc"),
        ("error: command 'x86_64-linux-gnu-gcc' failed: No such file or directory", "x86_64-linux-gnu-gcc"),
        ("unable to execute 'gcc': No such file or directory", "gcc"),
        ("CMake Error: No CMAKE_CXX_COMPILER could be found.", "c++"),
        ("configure: error: no acceptable C compiler found in $PATH", "cc"),
        ("Error: spawn ffmpeg ENOENT", "ffmpeg"),
        ("Command 'jq' not found, but can be installed with: apt install jq", "jq"),
        ("timeout: failed to run command ‘rg’: No such file or directory", "rg"),
        ("ERROR: JAVA_HOME is not set and no 'java' command could be found in your PATH.", "java"),
        ("The pkg-config command could not be found.", "pkg-config"),
    ],
)
def test_a_missing_program_is_named(message, name):
    """Every shell, runtime and build tool has its own words for a program that is not there."""
    assert missing(message) == f"program {name}"


@pytest.mark.parametrize(
    ("message", "name"),
    [
        ("ModuleNotFoundError: No module named 'yaml'", "yaml"),
        ("/usr/bin/python3: No module named pytest", "pytest"),
        ("ImportError: No module named google.cloud", "google"),
        ("Error: Cannot find module 'express'", "express"),
        ("Cannot find package '@octokit/rest' imported from /a/b.js", "@octokit/rest"),
        ("cannot load such file -- bundler/setup (LoadError)", "bundler/setup"),
        ("Can't locate JSON/XS.pm in @INC (you may need to install the JSON::XS module)", "JSON::XS"),
        ("a.go:8:2: no required module provides package github.com/a/b/v3: go.mod file not found", "github.com/a/b/v3"),
        ("there is no package called ‘ggplot2’", "ggplot2"),
        ("node: error while loading shared libraries: libatomic.so.1: cannot open", "libatomic.so.1"),
    ],
)
def test_a_missing_module_is_named(message, name):
    """Modules, packages and shared libraries, by the words of their languages."""
    assert missing(message) == f"module {name}"


@pytest.mark.parametrize(
    ("message", "request_", "expected"),
    [
        ("HTTP 401: Bad credentials (https://api.github.com/graphql)", "gh pr list", "credential github.com"),
        ("To get started with GitHub CLI, please run:  gh auth login", "gh api a", "credential github.com"),
        ("error: 401 Unauthorized", "curl -f https://api.github.com/x", "credential github.com"),
        ("fatal: could not read Username for 'https://github.com': terminal prompts disabled", "git push", "credential github.com"),
        ("npm error code E401", "npm publish", "credential registry.npmjs.org"),
        ("Unable to locate credentials", "aws s3 ls", "credential aws"),
        ("Not logged in. Run 'acme login'.", "acme activity", "credential acme"),
        ("AuthenticationError: Incorrect API key provided", "python a.py", "credential an API"),
        ("AuthenticationError: 401 Incorrect API key provided", "node b.mjs", "credential an API"),
        ("connect ECONNREFUSED 127.0.0.1:5432", "node server.js", "host localhost:5432"),
        ("java.net.ConnectException: Connection refused: broker1/10.0.0.4:9092", "java -jar a.jar", "host broker1:9092"),
        ("error during connect: this error may indicate that the docker daemon is not running", "docker ps", "host docker daemon"),
        ("CondaHTTPError: HTTP 000 CONNECTION FAILED for url <https://conda.anaconda.org/x>", "conda install a", "network conda"),
        ("curl: (7) Failed to connect to localhost port 8080 after 0 ms: Couldn't connect to server", "curl localhost:8080", "host localhost:8080"),
        ("curl: (6) Could not resolve host: api.internal", "curl https://api.internal/x", "host api.internal"),
        ("The connection to the server 10.0.0.1:6443 was refused - did you specify the right host or port?", "kubectl get a", "host 10.0.0.1:6443"),
        ('Get "http://localhost:8080/api": dial tcp 127.0.0.1:8080: connect: connection refused', "kubectl get a", "host localhost:8080"),
        ("dial tcp: lookup db.internal on 10.0.0.2:53: no such host", "./migrate", "host db.internal"),
        ("Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?", "docker ps", "host docker daemon"),
        ('could not translate host name "db" to address: Name or service not known', "psql -h db", "host db"),
        ("connection refused", "psql postgres://u:p@db.internal/x", "host db.internal:5432"),
        ("ConnectionRefusedError: [Errno 111] Connection refused", "python3 -c \"s.create_connection(('127.0.0.1', 5432))\"", "host localhost:5432"),
        ("bash: connect: Connection refused\nbash: line 1: /dev/tcp/10.0.0.4/5432: Connection refused", "./wait-for-db", "host 10.0.0.4:5432"),
        ("[Errno 111] Connection refused", "python3 -m pytest tests/test_a.py", ""),
        ("connection refused", "./client --broker 10.0.0.4:9092", "host 10.0.0.4:9092"),
        ("connection refused", "./client src/server.py:12", ""),
        ("connect ECONNREFUSED 127.0.0.1:4873", "npm install --registry http://127.0.0.1:4873/", "host localhost:4873"),
        ("Temporary failure in name resolution", "pip install a", "network pip"),
        ("Temporary failure in name resolution", "python3 -m pip install a", "network pip"),
        ("ReadTimeoutError: Read timed out.", "pip3 install a", "network pip"),
        ("Temporary failure resolving 'deb.debian.org'", "apt-get update", "network apt"),
        ("npm error network request to https://registry.npmjs.org/a failed, reason: getaddrinfo ENOTFOUND", "npm ci", "network npm"),
    ],
)  # fmt: skip
def test_a_missing_credential_host_or_network_is_named(message, request_, expected):
    """Who refuses and who is away, by one name whichever tool met it."""
    assert missing(message, request_) == expected


def test_tools_that_are_no_shell_name_the_host_of_their_arguments():
    """A browser or an API tool has its host in its arguments."""
    given = {"tool_name": "fetch", "command_word": ""}
    assert (
        missing("net::ERR_CONNECTION_REFUSED", '{"url": "http://localhost:5173/x"}', **given) == "host localhost:5173"
    )
    assert missing("Unauthorized", '{"url": "https://x.example"}', **given) == ""
    assert (
        missing("HTTP 401", '{"url": "https://x.example"}', **given, severity=FailureSeverity.PERMISSION)
        == "credential x.example"
    )
    assert missing("token has expired", "{}", **given | {"service": "jira"}) == "credential jira"


@pytest.mark.parametrize(
    ("message", "request_"),
    [
        ("bash: line 1: DISCUSSION: command not found", "DISCUSSION of x"),  # prose that was run
        ("bash: line 1: to: command not found", "to fix this"),
        ("bash: line 1: Im sorry, but I cant: command not found", "I'm sorry, but I can't"),
        ("bash: line 3: 4.0K: command not found", "`du -h x`"),
        ("bash: line 1: total: command not found", "`ls -l x`"),
        ("bash: line 1: total: command not found", "$(ls -l x)"),
        ("bash: line 1: BASH: command not found\nbash: line 2: testbed: command not found", "```BASH"),
        ("bash: line 1: d41d8cd98f00b204e9800998ecf8427e: command not found", "`md5sum x`"),
        ("bash: line 1: 4.6: command not found", "`awk 1`"),
        ("bash: line 1: -type: command not found", "-type f"),
        ("bash: cd: nowhere: No such file or directory", "cd nowhere"),
        ("cat: a: No such file or directory", "cat a"),
        ("Error: Cannot find module './local'", "node a.js"),
        ("Error: Cannot find module '/a/b.js'", "node a.js"),
        ("HTTP 403 Forbidden", "curl -f https://shop.example/x"),  # sites refuse robots
        ("AssertionError: 401 Unauthorized != 200", "pytest tests/test_login.py"),
        ("Test timed out in 5000ms", "npm test"),
        ("curl: (28) Operation timed out after 5000 milliseconds", "curl https://slow.example"),
        ("connection refused", "./run"),  # by whom?
        ("3 failed, 2 passed", "pytest"),
        ("", ""),
    ],
)
def test_other_failures_name_nothing(message, request_):
    """Prose, paths, a plain 403, tests of a login and slow sites are nothing missing."""
    assert missing(message, request_) == ""


def test_a_success_names_a_missing_program_alone():
    """A pipe hides the exit code of a missing program; other words in an output are its content."""
    assert missing("sh: playwright: command not found", "npx x | head", severity=None) == "program playwright"
    assert missing("No module named 'yaml'", "cat log", severity=None) == ""
    assert missing("connect ECONNREFUSED 127.0.0.1:5432", "cat log", severity=None) == ""


def test_a_status_of_401_needs_no_words():
    """HTTP tools tell the status beside the message; a refused robot (403) lacks no credential."""
    given = {"tool_name": "http_get", "command_word": "", "severity": FailureSeverity.PERMISSION}
    request = '{"url": "https://api.acme.example/v1/users"}'
    assert missing("Unauthorized", request, http_status=401, **given) == "credential acme.example"
    assert missing("Forbidden", request, http_status=403, **given) == ""


@pytest.mark.parametrize(
    ("lost", "programs", "request_"),
    [
        (MissingPart("program", "rg"), ["rg"], "rg foo"),
        (MissingPart("module", "yaml"), ["pip"], "pip install -r requirements.txt"),
        (MissingPart("module", "yaml"), ["python3"], "python3 -c 'import yaml'"),
        (MissingPart("host", "localhost:8080"), ["curl"], "curl -s http://127.0.0.1:8080/health"),
        (MissingPart("host", "db.internal:5432"), ["psql"], "psql -h db.internal -c x"),
        (MissingPart("host", "docker daemon"), ["docker"], "docker ps"),
        (MissingPart("credential", "github.com"), ["gh"], "gh pr list"),
        (MissingPart("credential", "github.com"), ["git"], "git push https://github.com/a/b"),
        (MissingPart("network", "pip"), ["python"], "python -m pip install a"),
        (MissingPart("network", "apt"), ["apt-get"], "apt-get update"),
    ],
)
def test_a_success_restores_what_was_missing(lost, programs, request_):
    """The same program, host, login or installer works again."""
    assert restored_by(lost, programs=programs, request=request_, tool=programs[0])


@pytest.mark.parametrize(
    ("lost", "programs", "request_"),
    [
        (MissingPart("program", "rg"), ["grep"], "grep rg notes"),
        (MissingPart("module", "yaml"), ["npm"], "npm run build"),
        (MissingPart("host", "localhost:8080"), ["curl"], "curl http://localhost:3000"),
        (MissingPart("host", "db.internal:5432"), ["grep"], "grep -rn db.internal config"),
        (MissingPart("host", "docker daemon"), ["docker"], "docker --version"),
        (MissingPart("host", "api.internal"), ["ls"], "ls"),
        (MissingPart("credential", "github.com"), ["gh"], "gh --version"),
        (MissingPart("credential", "github.com"), ["git"], "git status"),
        (MissingPart("network", "pip"), ["pip"], "pip list"),
        (MissingPart("network", "pip"), ["npm"], "npm install"),
    ],
)
def test_other_successes_restore_nothing(lost, programs, request_):
    """A success that only names the thing, or talks to nobody, shows nothing."""
    assert not restored_by(lost, programs=programs, request=request_, tool=programs[0])


def test_a_tool_that_is_no_shell_restores_its_host():
    """Outside of shells the arguments and the name of the tool decide."""
    lost = MissingPart("host", "localhost:5173")
    assert restored_by(lost, programs=(), request='{"url": "http://localhost:5173"}', tool="navigate")
    assert restored_by(MissingPart("credential", "jira"), programs=(), request="{}", tool="jira")


def test_loopback_hosts_are_those_of_this_machine():
    """Only what listens on this machine may have been started by the model."""
    assert all(
        map(is_loopback, ("localhost", "localhost:8080", "127.0.0.1:5432", "[::1]:80", "::1", "app.localhost:3000"))
    )
    assert not any(map(is_loopback, ("db.internal:5432", "10.0.0.1", "localhost.example.com", "docker daemon")))


@pytest.mark.parametrize("piece", ["x" * 64 + " ", "a.", "(", "sh: ", "connect to a", "https://a", "401 ", "make: a"])
def test_hostile_text_is_read_in_linear_time(piece):
    """Repeated beginnings of every pattern cost no more than other text."""
    missing(piece * (200_000 // len(piece)), piece * (200_000 // len(piece)))
