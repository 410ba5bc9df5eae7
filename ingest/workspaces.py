"""Workspace of a session: the project that its folder belongs to."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from time import monotonic

from ..schemas.fields import MAX_NAME

KEPT_S = 10.0  # Seconds after which a folder is looked at again: somebody may have begun a project there


def git_root(folder: str) -> str:
    """Root of the git project that a folder is in; empty without one."""
    return _git_root(folder, int(monotonic() // KEPT_S))


@lru_cache(maxsize=1024)
def _git_root(folder: str, period: int) -> str:
    del period
    here = Path(folder)
    try:
        return next((str(one) for one in (here, *here.parents) if (one / ".git").exists()), "")
    except OSError:  # a name that is too long for the file system
        return ""


def workspace_of(folder: str) -> str:
    """Return the workspace of a folder: the root of its git project, else the folder itself; empty if it is no path."""
    if not folder or "\x00" in folder or "\x1f" in folder or len(folder) > 4096:
        return ""
    root = git_root(folder) or folder
    if len(root) <= MAX_NAME:
        return root
    return f"{root[-200:]}#{blake2b(root.encode(), digest_size=8).hexdigest()}"
