"""`trustfold publish` to a running server, and `trustfold up` as people start it."""

from __future__ import annotations

import gzip
import json
import socket
from pathlib import Path

import pytest
from command_line import trustfold, up
from trustfold.cli.demo import events


def test_files_and_pipes_are_published_once(tmp_path: Path) -> None:
    """Files, packed files and standard input arrive; the same file again changes nothing."""
    (tmp_path / "day.ndjson.gz").write_bytes(gzip.compress(b"\n".join(events())))
    with up(cwd=tmp_path) as server:
        first = trustfold("publish", "day.ndjson.gz", "--url", server.url, "--json", cwd=tmp_path)
        assert json.loads(first.stdout) == {"sent": len(events()), "refused": 0}
        decided = server.lines("/v1/decisions")
        assert decided
        again = trustfold("publish", "-", cwd=tmp_path, stdin=b"\n".join(events()), env={"TRUSTFOLD_URL": server.url})
        assert again.stderr.decode() == f"{len(events())} published to {server.url}\n"
        assert server.lines("/v1/decisions") == decided


def test_large_files_go_in_several_requests(tmp_path: Path) -> None:
    """More than one request can hold is cut, in order."""
    line = events()[0]
    many = [line.replace(b'"id":"', b'"id":"%d-' % number) for number in range(2500)]
    text = b'{"type":"model.text","text":"%b",' % (b"x" * 900_000)
    many += [line.replace(b"{", text, 1).replace(b'"type":"tool_call.started",', b"") for _ in range(12)]
    with up(cwd=tmp_path) as server:
        done = trustfold("publish", "-", "--url", server.url, "--json", cwd=tmp_path, stdin=b"\n".join(many))
        assert json.loads(done.stdout)["sent"] + json.loads(done.stdout)["refused"] == len(many)


def test_refused_lines_are_counted(tmp_path: Path) -> None:
    """Bad lines become dead letters at the server, and exit code 1 here."""
    with up(cwd=tmp_path) as server:
        done = trustfold("publish", "-", "--url", server.url, cwd=tmp_path, stdin=b"bad\n" + events()[0])
        assert done.returncode == 1
        assert done.stderr.decode() == f"1 published to {server.url}, 1 refused\n"


def test_publish_finds_the_server_of_its_folder(tmp_path: Path) -> None:
    """As orders and `status` do."""
    with up(cwd=tmp_path) as server:
        done = trustfold("publish", "-", cwd=tmp_path, stdin=events()[0])
        assert (done.returncode, done.stderr.decode()) == (0, f"1 published to {server.url}\n")


def test_publish_needs_a_place(tmp_path: Path) -> None:
    """Without an address there is nothing to guess."""
    done = trustfold("publish", "-", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(b"trustfold: publish to where? give --url")


@pytest.mark.slow
def test_up_refuses_what_cannot_work(tmp_path: Path) -> None:
    """A taken port, a taken store and an open network without a token are refused in one line, and nothing is left."""
    with socket.create_server(("127.0.0.1", 0)) as taken, up(cwd=tmp_path):
        port = str(taken.getsockname()[1])
        for words, said in (
            (["--port", port, "--store", "other.sqlite"], f"cannot listen on 127.0.0.1:{port}"),
            (["--port", "0"], ".trustfold/trustfold.sqlite: in use by process"),
            (
                ["--port", "0", "--host", "0.0.0.0", "--store", "other.sqlite"],
                "0.0.0.0 can be reached from the network",
            ),
            (["--port", "0", "--rules", "none.toml"], "none.toml: cannot be read"),
        ):
            done = trustfold("up", *words, cwd=tmp_path)
            assert done.returncode in {1, 2}
            assert done.stderr.decode().startswith(f"trustfold: {said}")
            assert done.stderr.count(b"\n") == 1


def test_up_goes_by_its_rules(tmp_path: Path) -> None:
    """`up --rules` folds by that file, and `status` says which recovery mode is on."""
    (tmp_path / "reliability.json").write_text('{"enable_auto_recovery": false}')
    with up("--rules", "reliability.json", cwd=tmp_path) as server:
        assert server.get("/v1/state")["recovery_mode"] == "ask"
    assert "Recovery mode: ask" in trustfold("status", cwd=tmp_path).stdout.decode()
