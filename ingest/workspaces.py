"""Workspace of a session: the project that its folder belongs to."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

from ..schemas.fields import MAX_NAME


@lru_cache(maxsize=1024)
def git_root(folder: str) -> str:
    """Root of the git project that a folder is in; empty without one."""
    here = Path(folder)
    return next((str(one) for one in (here, *here.parents) if (one / ".git").exists()), "")


def workspace_of(folder: str) -> str:
    """Return the workspace of a folder: the root of its git project, else the folder itself; empty if it is no path."""
    if not folder or "\x00" in folder or "\x1f" in folder or len(folder) > 4096:
        return ""
    root = git_root(folder) or folder
    if len(root) <= MAX_NAME:
        return root
    return f"{root[-200:]}#{blake2b(root.encode(), digest_size=8).hexdigest()}"
