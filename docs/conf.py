"""Sphinx configuration of the documentation site (docs/decisions/0089-sphinx-builds-the-site.md).

`make docs` builds it into `build/site`. Every warning is an error there: a link or an anchor that leads nowhere, a
page outside of the table of contents, a docstring that does not parse.
"""

import re
from pathlib import Path
from typing import Any

import trustfold
from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[1]

project = "trustfold"
author = "The trustfold authors"
copyright = author  # noqa: A001 - the name is Sphinx's
version = release = trustfold.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "index"
exclude_patterns = ["_static"]
default_role = "code"  # docstrings write `name`, as Markdown does
python_maximum_signature_line_length = 88
python_use_unqualified_type_names = True

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
suppress_warnings = [
    "myst.header",  # a page that is included begins below the first level
    "misc.highlighting_failure",  # examples of output have no grammar
]

autodoc_preserve_defaults = True
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_mock_imports = [
    # Frameworks are not installed beside each other (docs/frameworks.md).
    "agents",
    "claude_agent_sdk",
    "crewai",
    "google.adk",
    "google.genai",
    "langchain",
    "pydantic_ai",
    "strands",
]
napoleon_use_ivar = True
napoleon_use_rtype = False

html_theme = "furo"
html_title = f"trustfold {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_search_scorer = str(ROOT / "docs" / "search_scorer.js")
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b6157", "color-brand-content": "#0b6157"},
    "dark_css_variables": {"color-brand-primary": "#5fd0bd", "color-brand-content": "#5fd0bd"},
}

_OUTSIDE = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+[^)#\s]+)(#[^)\s]*)?\)")
_FOUND_FIRST = {
    "connect": "Claude Code, Codex, Gemini CLI, Qwen Code, Copilot, OpenCode, Cursor, hooks, MCP",
    "detection": "stuck, loop, nudge, pause, false alarm",
    "events": "publish, publish events",
    "guard": "ToolGuard, retry, idempotency, approval",
    "history": "DuckDB, Parquet, SQL, what-if, import",
    "install": "pip, uv, pipx, extras, upgrade, uninstall",
    "operating": "Kafka, worker, lag, alerts, rules, settings, environment variables, token",
    "outputs": "escalations, breakers, nudges",
    "trust": "escalated, blocked, recovering, trusted, removed, approve, recover, reset, circuit, open circuit",
}
"""Words by which the search of the site finds a page before others that only mention them."""
_DECISIONS = "\n\n```{toctree}\n:hidden:\n:glob:\n\n[0-9]*\n```\n"


def read_source(app: Sphinx, page: str, source: list[str]) -> None:
    """Prepare a page that is also read on a code host.

    A link to a file outside `docs/` becomes the file's path, words become entries of the index, and the index of
    decisions gets their table of contents.
    """
    folder = (Path(app.srcdir) / page).parent

    def as_path(link: re.Match[str]) -> str:
        target = (folder / link[2]).resolve()
        if target.is_relative_to(app.srcdir) or not target.exists():
            return link[0]
        return f"`{target.relative_to(ROOT)}`"

    source[0] = _OUTSIDE.sub(as_path, source[0])
    if words := _FOUND_FIRST.get(page):
        title, _, rest = source[0].partition("\n")
        entries = ", ".join(f"!{word}" for word in words.split(", "))
        source[0] = f"{title}\n\n```{{index}} {entries}\n```\n{rest}"
    if page == "decisions/README":
        source[0] += _DECISIONS


def setup(app: Sphinx) -> dict[str, Any]:
    """Register what prepares the pages."""
    app.connect("source-read", read_source)
    return {"parallel_read_safe": True}
