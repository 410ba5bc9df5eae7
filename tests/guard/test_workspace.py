"""Digests of a git project: they follow every change of its files, and nothing of the project is run or written."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from trustfold.guard import workspace
from trustfold.guard.workspace import DigestEvidence, WorkspaceDigests, workspace_digest

AUTHOR = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
PATIENT_S = 20.0
"""Time for a digest on a busy machine; the default is measured, not tested."""


def git(folder: Path, *words: str) -> str:
    """Run git in a folder as its owner would."""
    environ = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(["git", *AUTHOR, *words], cwd=folder, env=environ, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a commit, in a home of its own."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    (tmp_path / "home").mkdir()
    folder = tmp_path / "shop"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "a.py").write_text("a = 1\n")
    (folder / ".gitignore").write_text("build/\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    return folder


def digest(folder: Path) -> str | None:
    """The digest of a folder, in all the time that it needs."""
    return workspace_digest(str(folder), PATIENT_S)


def _modify(folder: Path) -> None:
    (folder / "a.py").write_text("a = 2\n")


def _modify_again(folder: Path) -> None:
    (folder / "a.py").write_text("a = 3\n")


def _add(folder: Path) -> None:
    (folder / "new dir").mkdir()
    (folder / "new dir" / "b\n.py").write_text("b")


def _change_the_new_file(folder: Path) -> None:
    (folder / "new dir" / "b\n.py").write_text("c")


def _remove(folder: Path) -> None:
    (folder / "a.py").unlink()


def _commit(folder: Path) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "next")


def _go_back(folder: Path) -> None:
    git(folder, "checkout", "-q", "HEAD~1")


CHANGES: tuple[Callable[[Path], None], ...] = (
    *(_modify, _modify_again, _add, _change_the_new_file, _remove, _commit, _go_back),
)


def test_every_change_shows(project: Path) -> None:
    """A file modified, modified again, new, changed while new, gone; another commit, with a clean tree both times."""
    seen = [digest(project)]
    for change in CHANGES:
        time.sleep(0.005)  # the clock of files ticks every 4 ms
        change(project)
        assert digest(project) == digest(project), change
        seen.append(digest(project))
    assert None not in seen
    assert seen[-1] == seen[0], "the first commit again"
    assert len(set(seen)) == len(CHANGES)


def test_what_is_no_change_does_not_show(project: Path) -> None:
    """Ignored files, and a look from a folder inside."""
    before = digest(project)
    (project / "build").mkdir()
    (project / "build" / "out").write_text("x")
    assert digest(project) == before
    assert digest(project / "build") == before


def test_a_linked_working_tree_is_a_project(project: Path) -> None:
    """`git worktree` puts a file in the place of the folder `.git`."""
    git(project, "worktree", "add", "-q", "../other")
    other = project.parent / "other"
    before = digest(other)
    (other / "a.py").write_text("else")
    assert None not in {before, digest(other)}
    assert digest(other) != before


# --- not at all -------------------------------------------------------------------------------------------------------


def test_only_a_project_has_a_digest(project: Path, tmp_path: Path) -> None:
    """Not a folder without git, a relative one, one that is gone, a broken repository inside another project."""
    (tmp_path / "plain").mkdir()
    inner = project / "inner"
    (inner / ".git").mkdir(parents=True)
    for folder in (tmp_path / "plain", Path("shop"), Path(), tmp_path / "gone", inner, Path("/"), Path("/\x00")):
        assert digest(folder) is None, folder


@pytest.mark.parametrize("name", ["shop", "shop/deeper/home", "home"])
def test_a_home_is_no_project(name: str, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home kept in git, or a repository around the home, would show every program's files."""
    home = project.parent / name
    home.mkdir(parents=True, exist_ok=True)
    if name == "home":
        (project.parent / "link").symlink_to(project)
        monkeypatch.setenv("HOME", str(project.parent / "link"))
    else:
        monkeypatch.setenv("HOME", str(home))
    assert digest(project) is None


def test_what_git_does_not_show_makes_it_unknown(project: Path) -> None:
    """Submodules and repositories inside have a state of their own, which is not looked at."""
    (project / ".gitmodules").write_text("")
    assert digest(project) is None
    (project / ".gitmodules").unlink()
    (project / "vendor").mkdir()
    git(project / "vendor", "init", "-q")
    assert digest(project) is None


def test_too_many_changes_make_it_unknown(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound nothing is said; equal digests would prove nothing."""
    monkeypatch.setattr(workspace, "MAX_FILES", 3)
    for number in range(4):
        assert digest(project) is not None
        (project / f"{number}.txt").touch()
    assert digest(project) is None
    monkeypatch.setattr(workspace, "MAX_FILES", 100)
    monkeypatch.setattr(workspace, "MAX_OUTPUT", 100)
    assert digest(project) is None


def test_a_project_of_somebody_else_is_left_alone(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Git itself refuses it, unless its owner's settings say otherwise."""
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    assert digest(project) is None


# --- a hostile project ------------------------------------------------------------------------------------------------


def test_nothing_of_a_project_is_run(project: Path, tmp_path: Path) -> None:
    """Its configuration names programs for everything; none of them runs, and the digest still follows its files."""
    mark = tmp_path / "ran"
    trap = tmp_path / "trap"
    trap.write_text(f"#!/bin/sh\necho \"$0 $*\" >> '{mark}'\ncat\n")
    trap.chmod(0o755)
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for name in ("post-index-change", "pre-auto-gc", "fsmonitor-watchman", "post-checkout", "reference-transaction"):
        (hooks / name).symlink_to(trap)
        (project / ".git" / "hooks" / name).unlink(missing_ok=True)
        (project / ".git" / "hooks" / name).symlink_to(trap)
    (project / ".gitattributes").write_text("* filter=trap diff=trap merge=trap\n*.b filter=a=b.c\n")
    (project / "x.b").write_text("1")
    _commit(project)
    other = project / ".git" / "included"
    for file, name, value in (
        (None, "include.path", str(other)),
        (None, "core.fsmonitor", str(trap)),
        (None, "core.hooksPath", str(hooks)),
        (None, "core.sshCommand", str(trap)),
        (None, "core.pager", str(trap)),
        (None, "pager.status", str(trap)),
        (None, "core.editor", str(trap)),
        (None, "core.askPass", str(trap)),
        (None, "credential.helper", f"!{trap}"),
        (None, "alias.status", f"!{trap}"),
        (None, "alias.config", f"!{trap}"),
        (None, "diff.external", str(trap)),
        (None, "diff.trap.textconv", str(trap)),
        (None, "status.submoduleSummary", "true"),
        (None, "filter.trap.required", "true"),
        (None, "filter.trap.clean", str(trap)),
        (other, "filter.trap.process", str(trap)),
        (other, "filter.a=b.c.clean", str(trap)),
        (other, "filter.a=b.c.smudge", str(trap)),
    ):
        git(project, "config", *(("--file", str(file)) if file else ()), name, value)
    mark.unlink(missing_ok=True)
    before = digest(project)
    for name in ("a.py", "x.b"):  # as long as before, so that git has to read it
        (project / name).write_text((project / name).read_text().replace("1", "7"))
        os.utime(project / name, ns=(10**18, 10**18))
    after = digest(project)
    assert not mark.exists(), mark.read_text()
    assert None not in {before, after}
    assert before != after
    subprocess.run(["git", "-C", str(project), "--no-pager", "status"], capture_output=True, check=False)
    assert mark.exists(), "no trap, no test"


def test_the_index_is_not_written(project: Path) -> None:
    """A look would write down that a file is as before, if it may; another git that is at work would fail."""
    index = project / ".git" / "index"
    os.utime(project / "a.py", ns=(10**18, 10**18))
    before = index.read_bytes()
    assert digest(project) is not None
    assert index.read_bytes() == before
    git(project, "status")
    assert index.read_bytes() != before, "nothing to write, no test"


@pytest.mark.parametrize("url", ["ext::@trap@", "ssh://example.org/x", "@source@", "file://@source@", "trap::x"])
def test_missing_objects_are_not_fetched(url: str, project: Path, tmp_path: Path) -> None:
    """A partial clone fetches what it misses, by any program that its configuration names."""
    mark, trap = tmp_path / "ran", tmp_path / "trap"
    tree = git(project, "rev-parse", "HEAD^{tree}").strip()
    git(project, "rm", "-q", "--cached", "a.py")
    (project / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
    trap.write_text(f"#!/bin/sh\necho ran >> '{mark}'\n")
    trap.chmod(0o755)
    for name, value in (
        ("remote.origin.url", url.replace("@trap@", str(trap)).replace("@source@", str(tmp_path))),
        ("remote.origin.promisor", "true"),
        ("remote.origin.partialCloneFilter", "tree:0"),
        ("remote.origin.uploadpack", str(trap)),
        ("extensions.partialClone", "origin"),
        ("core.repositoryFormatVersion", "1"),
        ("protocol.allow", "always"),
        ("core.sshCommand", str(trap)),
    ):
        git(project, "config", name, value)
    assert digest(project) is None
    assert not mark.exists()
    subprocess.run(["git", "status"], cwd=project, capture_output=True, check=False)
    assert mark.exists() or "trap::" in url, "no trap, no test"


def test_the_settings_lead_nowhere_else(project: Path, tmp_path: Path) -> None:
    """Neither a working tree elsewhere, in the project's settings, nor variables of this process are followed."""
    before = digest(project)
    git(project, "config", "core.worktree", str(tmp_path / "home"))
    (tmp_path / "home" / "private").write_text("x")
    assert digest(project) == before
    (project / "a.py").write_text("changed")
    assert digest(project) not in {None, before}


def test_variables_of_git_are_not_passed_on(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit hook that starts an agent leaves them in its environment."""
    before = digest(project)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    monkeypatch.setenv("GIT_TRACE", str(tmp_path / "trace"))
    assert digest(project) == before
    assert not (tmp_path / "trace").exists()


# --- in time ----------------------------------------------------------------------------------------------------------


def _hanging_git(folder: Path) -> Path:
    """A git that starts another program, writes its process id, and never ends."""
    program = folder / "git"
    program.write_text(f"#!/bin/sh\nsleep 1000 &\necho $! > '{folder}/child'\nwait\n")
    program.chmod(0o755)
    return program


def test_a_slow_git_is_ended_with_its_children(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has no answer in time is killed as a group."""
    program = _hanging_git(tmp_path)
    monkeypatch.setattr(workspace, "_program", lambda: str(program))
    assert workspace_digest(str(project), 0.5) is None
    child = int((tmp_path / "child").read_text())
    until = time.monotonic() + 10
    while time.monotonic() < until and _state(child) not in {"", "Z"}:
        time.sleep(0.01)
    assert _state(child) in {"", "Z"}


def _state(process: int) -> str:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""


async def test_a_project_that_was_too_slow_is_left_alone_for_a_while(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time is spent once; the next failures of the next minute cost nothing."""
    now, asked = [0.0], []

    def slow(root: str, within_s: float) -> str | None:
        asked.append(root)
        now[0] += within_s
        return None if len(asked) == 1 else "w1:0"

    monkeypatch.setattr(workspace, "workspace_digest", slow)
    workspaces = WorkspaceDigests(monotonic=lambda: now[0])
    assert [await workspaces.digest(str(project)) for _ in range(3)] == [None] * 3
    assert asked == [str(project)]
    now[0] += workspace.PAUSE_S
    assert await workspaces.digest(str(project)) == "w1:0"


# --- what may be said -------------------------------------------------------------------------------------------------


def test_an_equal_state_is_stated_only_if_nothing_else_can_have_changed() -> None:
    """A database, a service or an ignored file changes without a trace in the project: then nothing is proof."""
    evidence = DigestEvidence()
    assert evidence.state("a") == "a"
    assert evidence.state("a") == "a"
    evidence.succeeded("Bash", {"command": "grep -rn todo src"})
    assert evidence.state("a") == "a"
    for tool, args in (
        ("Bash", {"command": "docker compose up -d"}),
        ("Bash", {"command": "pip install requests"}),
        ("Edit", {"file_path": ".env"}),
        ("mcp__db__execute", {"sql": "update x set y = 1"}),
    ):
        evidence.succeeded(tool, args)
        assert evidence.state("a") is None, args
        assert evidence.state("a") == "a"
    evidence.succeeded("Edit", {"file_path": "a.py"})
    assert evidence.state("b") == "b"
    assert evidence.state(None) is None
    assert evidence.state("b") == "b"
