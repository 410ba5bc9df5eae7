"""`trustfold open`: the dashboard in a browser, signed in."""

from __future__ import annotations

import os
import sys
import webbrowser

import click

from .clients.client import DeploymentClient
from .options import with_target
from .render import echo, note


@click.command("open")
@with_target
def open_(*, target: DeploymentClient) -> None:
    """Open the dashboard of a running `up`, signed in; without a browser, print its address.

    The address signs in once, within five minutes. On a terminal it may give orders.
    """
    url = target.dashboard()
    if not _has_browser() or not webbrowser.open(url):
        note("no browser was found; this address signs in once, within 5 minutes:")
        echo(url)
        return
    note(f"opened {url.partition('/sign-in')[0]}/")


def _has_browser() -> bool:
    """Whether a browser can show a page beside this terminal; a text browser on a server cannot run the dashboard."""
    if sys.platform == "darwin" or os.environ.get("BROWSER"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
