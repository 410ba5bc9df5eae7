"""Failure keys: what accumulates together, and what must never stand in a key.

See docs/design/semantics.md#failure-keys.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trustfold.projections.calls import command_line
from trustfold.projections.calls.keys import (
    CallKey,
    call_key,
    family_of_key,
    make_key,
    parse_key,
    scope_of_key,
    tool_key,
    tool_of_key,
)
from trustfold.projections.calls.shell import simple_commands

HTTP_KEY = "http_request|domain=api.example.com|path_prefix=v1"


@pytest.mark.parametrize(
    ("tool", "args", "fine"),
    [
        ("readFile", {"path": "/etc/passwd"}, "readFile|path_prefix=/etc"),
        ("readFile", {"path": "/etc/../etc/./x"}, "readFile|path_prefix=/etc"),
        ("readFile", {"path": "foo.txt"}, "readFile|path_prefix=."),
        ("readFile", {}, "readFile"),
        ("Read", {"file_path": "C:\\src\\a.py"}, "Read|path_prefix=C:/src"),
        ("grep", {"path": "/src", "pattern": "x"}, "grep|path_prefix=/src"),
        ("http_request", {"url": "https://API.Example.com:443/v1/x"}, HTTP_KEY),
        ("http_request", {"url": "http://h:8080"}, "http_request|domain=h:8080"),
        ("http_request", {"url": "api.example.com/v1"}, HTTP_KEY),
        ("http_request", {"url": "not a url"}, "http_request"),
        ("bash", {"command": "git status"}, "bash|command=git"),
        ("bash", {"command": ["bash", "-lc", "cd x && make test"]}, "bash|command=make"),
        ("bash", {"command": ""}, "bash"),
        ("exec_command", {"cmd": "git status"}, "exec_command|command=git"),
        ("mcp_atlassian_search", {"q": 1}, "mcp_atlassian_search|mcp_server=atlassian"),
        ("mcp__github__list_issues", {}, "mcp__github__list_issues|mcp_server=github"),
        ("mcp_x", {"_mcp_server": "atl"}, "mcp_x|mcp_server=atl"),
        ("unknown_tool", {"foo": "bar"}, "unknown_tool"),
        ("odd|name=x", {}, "odd\\|name\\=x"),
    ],
)  # fmt: skip
def test_keys_name_the_family_of_targets(tool: str, args: dict[str, Any], fine: str) -> None:
    """Directory, domain and first segment, command word, MCP server; else the tool alone."""
    assert call_key(tool, args).fine == fine


@pytest.mark.parametrize(
    ("keys", "family"),
    [
        ([HTTP_KEY, "fetch|path_prefix=v2|domain=api.example.com"], "api.example.com"),
        (["mcp__jira__search|mcp_server=jira"], "jira"),
        (["Read|path_prefix=/etc/ssl/private", "Read|path_prefix=/etc"], "Read|path_prefix=/etc"),
        (["Read|path_prefix=src/a", "Read|path_prefix=src"], "Read|path_prefix=src"),
        (["Read|path_prefix=C:/src/a", "Read|path_prefix=C:/src"], "Read|path_prefix=C:/src"),
        (["Read|path_prefix=s3:/bucket/a/b"], "Read|path_prefix=s3:/bucket"),
        (["Read|path_prefix=/a\\|b/c", "Read|path_prefix=/a\\|b|x=1"], "Read|path_prefix=/a\\|b"),
        (["Read|path_prefix=/"], "Read|path_prefix=/"),
        (["Read|path_prefix=."], "Read|path_prefix=."),
        (["bash|command=./a/b"], "bash|command=./a/b"),
        (["query|path_prefix\\=/a/b"], "query|path_prefix\\=/a/b"),
        (["deploy"], "deploy"),
    ],
)
def test_keys_of_one_cause_are_one_family(keys: list[str], family: str) -> None:
    """Paths of a host, folders below one top folder; a program is its own family."""
    assert {family_of_key(key) for key in keys} == {family}


def test_below_a_home_each_directory_is_a_family_of_its_own() -> None:
    """An agent that gives absolute paths is judged as one that gives paths of its project."""
    keys = [call_key("Read", {"file_path": f"{home}/code/app/{name}/x.py"}).fine
            for home in ("/home/ada", "/Users/ada", "C:/Users/ada", "/root") for name in ("api", "web")]  # fmt: skip
    assert len({family_of_key(key) for key in keys}) == len(keys)


def test_a_service_named_by_the_event_wins() -> None:
    """The publisher knows its MCP server better than the tool's name does."""
    assert call_key("mcp_a_b", {}, "jira") == CallKey("mcp_a_b|mcp_server=jira", "jira", "mcp")


def test_credentials_never_stand_in_a_key() -> None:
    """User information of a URL and arguments of a command stay out."""
    url = call_key("http_request", {"url": "https://user:s3cret@api.example.com/v1"})
    command = call_key("bash", {"command": "curl -H 'Authorization: s3cret' https://x"})
    assert "s3cret" not in url.fine + url.service + command.fine


def test_keys_are_single_lines_of_bounded_length() -> None:
    """A path of a megabyte with line breaks does not become a record key."""
    key = call_key("readFile", {"path": "/a\nb/" + "x" * 100_000 + "/f"}).fine
    assert "\n" not in key
    assert len(key) < 200


@given(st.text(), st.dictionaries(st.text(), st.text()))
def test_any_arguments_give_a_key_of_the_tool(tool: str, args: dict[str, str]) -> None:
    """Whatever a model writes, there is a key, and it is made of the tool's."""
    assert call_key(tool, args).fine.startswith(make_key(tool, {}))


ODD_NAMES = [
    "x" * 200 + "a",
    "x" * 200 + "b",
    "a|b",
    "a=b",
    "a\\|b",
    "a\nb",
    "a\tb",
    "a b",
    "\x1b[31mred",
    "C:\\Tools\\New",
    "outil-é",
    "工具",
    "service:crm",
    "tool:bash",
    "tier:small",
    "=" * 256,
]


@given(st.text(max_size=256), st.text(max_size=256))
def test_names_of_tools_have_keys_of_their_own(one: str, other: str) -> None:
    """The name can be read back, from the tool's key and from the key of a target; nothing ends a line."""
    assert tool_of_key(tool_key(one)) == one
    assert tool_of_key(make_key(one, {"command": other or "x"})) == one
    assert scope_of_key(make_key(one, {"command": "rm"})) == f"tool:{one}"
    assert (tool_key(one) == tool_key(other)) is (one == other)
    assert not set(tool_key(one)) & {chr(code) for code in (*range(32), 127)}
    assert len(tool_key(one)) <= 2 * len(one)


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_stay_apart(name: str) -> None:
    """Long ones, those with separators, control characters, or the look of a scope."""
    assert tool_of_key(tool_key(name)) == name
    assert scope_of_key(tool_key(name)) == f"tool:{name}"
    assert len({tool_key(one) for one in ODD_NAMES}) == len(ODD_NAMES)


def test_long_values_stay_apart() -> None:
    """What is cut off has its digest behind."""
    keys = {make_key("t", {"path_prefix": "/deep" * 100 + end}) for end in "abc"}
    assert len(keys) == 3
    assert all(len(key) < 150 for key in keys)


def test_a_key_parses_back_into_tool_and_signature() -> None:
    """`status` and the commands take keys apart as they were made."""
    assert parse_key("readFile|path_prefix=/etc") == ("readFile", "path_prefix=/etc")


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("FOO=1 git push", "git"),
        ("cd /x && npm test", "npm"),
        ("cd /x", "cd"),
        ("sudo -u bob rm x", "rm"),
        ("env A=1 B=2 python x.py", "python"),
        ("time make", "make"),
        ("nohup ./run.sh &", "run.sh"),
        ("timeout -s KILL 30 pytest -q", "pytest"),
        ("bash -lc 'cd x; cargo build'", "cargo"),
        ("/usr/bin/git log", "git"),
        ("(cd a && ls)", "ls"),
        ("if true; then rm x; fi", "true"),
        ("for i in 1 2; do echo $i; done", "echo"),
        ("2>&1 ls", "ls"),
        ("echo 'unclosed", "echo"),
        ("The tests fail now.", ""),
        ("I will look at the file first, then run it", ""),
        ("Let's check whether it works", ""),
        ("Rscript analyse.R out", "Rscript"),
        ("Make all", "Make"),
        ("VBoxManage list vms", "VBoxManage"),
    ],
)
def test_the_command_word_is_the_first_that_does_something(line: str, word: str) -> None:
    """Assignments, wrappers and changes of directory are passed over; prose that was sent to a shell has none."""
    assert command_line.read(line).word == word


def test_here_documents_are_data() -> None:
    """What a here-document contains is no command."""
    commands = simple_commands("cat <<'EOF' > note.txt\nrm -rf /\nEOF\nls")
    assert [command.words for command in commands] == [("cat",), ("ls",)]
    assert commands[0].writes == ("note.txt",)


@given(st.text(max_size=300))
def test_the_lexer_reads_anything(line: str) -> None:
    """No command line, however broken, makes it fail."""
    simple_commands(line)


@pytest.mark.parametrize(
    "line",
    [
        "KEYS=(sk-abc123 sk-def)\ncurl x",
        '$env:GITHUB_TOKEN="ghp_secret"; gh pr list',
        "arr[0]=sekret cmd",
        "TOK\\\nEN=abc cmd",
    ],
)
def test_values_of_assignments_never_become_the_command(line: str) -> None:
    """Arrays, elements, PowerShell and continued lines are assignments too."""
    assert call_key("bash", {"command": line}).fine in {"bash|command=curl", "bash|command=gh", "bash|command=cmd"}


def test_a_path_segment_that_could_be_a_token_is_left_out() -> None:
    """Some APIs carry the credential in the first segment of the path."""
    key = call_key("http_request", {"url": "https://api.telegram.org/bot123456:AAHsecret/sendMessage"})
    assert key.fine == "http_request|domain=api.telegram.org"


@pytest.mark.parametrize(
    "url",
    [
        "https://ada:s3cret@example.com/docs/a.txt",
        "postgres://ada:p@s3cret@db.example.com/orders",
        "https://example.com/docs/a.txt?token=s3cret/and/more",
        "https://example.com/docs/a.txt#s3cret/and/more",
    ],
)
@pytest.mark.parametrize("tool", ["read_file", "grep"])
def test_a_url_given_as_a_path_leaves_its_secrets_behind(tool: str, url: str) -> None:
    """File tools read URLs too; credentials and queries stand in no key."""
    fine = call_key(tool, {"path": url}).fine
    assert "s3cret" not in fine
    assert "example.com" in fine
