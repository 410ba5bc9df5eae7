"""The command `trustfold`: names and one line for each command; each command has a module in this package.

A command's module is imported when it is run or asked for its own help, so the entry is quick.
"""

from __future__ import annotations

import logging
import sys
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click

from .. import __version__
from ..errors import EXTRAS, NotInstalled, TrustfoldError
from .interrupts import interrupts_postponed, obey_interrupts
from .render import (
    EXIT_CODES_HELP,
    ExitCode,
    error_line,
    exit_code_of,
    ignore_closed_stdout,
    output_is_full,
    prepare_streams,
)

# By heading and command name: its module and function in this package, and its line in the list
SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "First steps": {
        "demo": ("demo:demo", "Replay a scripted agent whose tools fail, and show each decision."),
        "connect": ("connect:connect", "Connect a coding agent: Claude Code, Codex, Gemini, Qwen and others."),
        "open": ("open:open_", "Open the dashboard in a browser, signed in."),
        "status": ("status:status", "Show keys that are not trusted, and open circuits."),
        "doctor": ("doctor:doctor", "Check everything trustfold needs here, and list what to fix."),
        "uninstall": (
            "uninstall:uninstall",
            "Remove the hooks of all agents, the server in the background and its data.",
        ),
    },
    "Agents and servers": {
        "up": ("up:up", "Run on this machine: HTTP in, decisions out, no Kafka."),
        "tail": ("tail:tail", "Follow session logs of coding agents and publish their events."),
        "mcp-proxy": ("mcp_proxy:mcp_proxy", "Run an MCP server behind a guard."),
        "publish": ("publish:publish", "Publish events from a file to Kafka or a running `up`."),
        "replay": ("replay:replay", "Fold recorded events and print the decisions."),
        "import": ("import_logs:import_logs", "Turn logs of other tools into events."),
    },
    "Orders": {
        "approve": ("operator:approve", "Let one call of an escalated tool pass."),
        "acknowledge": ("operator:acknowledge", "Say that somebody deals with an incident."),
        "reset": ("operator:reset", "Restore clean trust of a tool and close its circuit."),
        "recover": ("operator:recover", "Restore the trust of an escalated tool."),
        "remove": ("operator:remove", "Refuse all calls of a tool until it is restored."),
        "restore": ("operator:restore", "Allow the calls of a removed tool again."),
        "breaker": ("operator:breaker", "Open, close, disable or only observe a circuit."),
    },
    "Keys, models and settings": {
        "quality": ("quality:quality", "Show how well tools do their work; rank, mark and restore them."),
        "behavior": ("behavior:behavior", "Show how models behave: stalls, patterns, nudges."),
        "patterns": ("behavior:patterns", "Show which patterns were detected, and in which models."),
        "stalls": ("behavior:stalls", "Show the share of each model's turns that were stuck."),
        "settings": ("setting_levels:settings", "Show every setting and its source; save or clear a level."),
        "recovery": ("setting_levels:recovery", "Choose whether trust is restored automatically or by `recover`."),
        "nudge": ("setting_levels:nudge", "Set the strongest nudge that models get."),
        "model": ("setting_levels:model", "Show models per tool; set the strategy for switching."),
        "config": ("config:config", "Show the rules in effect; check a rules file."),
        "policies": ("config:policies", "List, reload or validate prerequisites."),
    },
    "The past": {
        "record": ("record:record", "Record everything as Parquet for analysts."),
        "history": ("history:history", "Answer questions about the recorded past, as tables."),
        "story": ("story:story", "Show a session as a timeline: calls, loops, nudges."),
        "report": ("report:report", "Report what happened, as tables or as one HTML page."),
        "whatif": ("whatif:whatif", "Replay the history under other rules and show the difference."),
        "sql": ("sql:sql", "Query the history with DuckDB: views and macros."),
    },
    "Kafka": {
        "topics": ("worker:topics", "Create or check the Kafka topics."),
        "worker": ("worker:worker", "Run a Kafka worker."),
        "web": ("web:web", "Show the dashboard of workers on Kafka."),
        "lag": ("lag:lag", "Show how far workers and recorders are behind."),
        "dead-letters": ("dead_letters:dead_letters", "List records that could not be processed; publish them again."),
    },
    "Contract": {
        "schemas": ("config:schemas", "Export the JSON Schemas and the AsyncAPI document."),
    },
}

COMMANDS = {name: place for section in SECTIONS.values() for name, place in section.items()}

# Commands also available as `trustfold reliability ...`
RELIABILITY_COMMANDS = (
    *("status", "reset", "recover", "approve", "remove", "restore", "behavior", "patterns", "stalls"),
    *("settings", "recovery", "nudge", "model", "config", "policies"),
)


class LazyGroup(click.Group):
    """Click group that imports a command's module only when the command is used."""

    def __init__(self, *args: Any, sections: dict[str, dict[str, tuple[str, str]]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sections = sections
        self._at = {name: place for section in sections.values() for name, place in section.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All command names, in the order of a first use."""
        return [*self._at, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command of a name."""
        if cmd_name not in self._at:
            return super().get_command(ctx, cmd_name)
        module, _, name = self._at[cmd_name][0].partition(":")
        with interrupts_postponed():
            imported = import_module(f".{module}", __package__)
        command: click.Command = getattr(imported, name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        own = ((name, super(LazyGroup, self).get_command(ctx, name)) for name in super().list_commands(ctx))
        rest = [(name, command.get_short_help_str()) for name, command in own if command is not None]
        for title, section in self._sections.items():
            with formatter.section(title):
                formatter.write_dl([(name, line) for name, (_, line) in section.items()])
        if rest:
            with formatter.section("Others"):
                formatter.write_dl(rest)


# Message of the RuntimeError that DuckDB raises in place of KeyboardInterrupt while it runs a query
_CANCELLED_QUERY = "Query interrupted"


class RootGroup(LazyGroup):
    """Root command group: each expected error becomes one line and an exit code, without a traceback."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Parse the command line and run it."""
        prepare_streams()
        try:
            return super().main(*args, **kwargs)
        except ImportError as missing:
            if (missing.name or "").partition(".")[0] not in EXTRAS:
                raise
            error_line(str(NotInstalled("what this command needs", missing)))
            sys.exit(ExitCode.USAGE)
        except OSError as error:
            if not output_is_full(error):
                raise
            ignore_closed_stdout()
            error_line(f"{error.strerror}: the output could not be written; free some space or write it elsewhere")
            sys.exit(ExitCode.FAILED)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        try:
            obey_interrupts()
            result = super().invoke(ctx)
            sys.stdout.flush()
        except TrustfoldError as error:
            error_line(str(error))
            ctx.exit(exit_code_of(error))
        except click.UsageError as error:
            _name_commands(error)
            raise
        except KeyboardInterrupt:
            error_line("interrupted")
            ctx.exit(ExitCode.INTERRUPTED)
        except RuntimeError as error:
            if str(error) != _CANCELLED_QUERY:
                raise
            error_line("interrupted")
            ctx.exit(ExitCode.INTERRUPTED)
        except click.Abort:
            error_line("nothing was done")
            ctx.exit(ExitCode.FAILED)
        except BrokenPipeError:
            ignore_closed_stdout()
            ctx.exit(ExitCode.OK)
        except OSError as error:
            if error.filename is None:
                raise
            name = error.filename if isinstance(error.filename, str) else repr(error.filename)
            error_line(f"{name}: {error.strerror}; check the path and its rights, or name another one")
            ctx.exit(ExitCode.FAILED)
        else:
            return result


def _name_commands(error: click.UsageError) -> None:
    """Add the nearest command name, or all names, to the error about an unknown command."""
    group = error.ctx.command if error.ctx is not None else None
    if error.ctx is None or not isinstance(group, click.Group) or not error.message.startswith("No such command"):
        return
    names = group.list_commands(error.ctx)
    near = get_close_matches(error.message.split("'")[1], names, n=1) if "'" in error.message else []
    hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(names)}"
    error.message = f"{error.message.rstrip('.')}; {hint}"


@click.group(
    cls=RootGroup,
    sections=SECTIONS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=EXIT_CODES_HELP,
)
@click.version_option(__version__, "--version", message="trustfold %(version)s")
@click.option("-v", "--verbose", count=True, help="Log more to standard error; -vv even more.")
def main(*, verbose: int) -> None:
    """Fold the events of AI agents' tool calls into decisions.

    Is this tool healthy, may it run without asking, is this model stuck? Start with `trustfold demo`.
    """
    if verbose:
        level = logging.INFO if verbose == 1 else logging.DEBUG
        logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")


main.add_command(
    LazyGroup(
        "reliability",
        sections={
            "Commands": {name: COMMANDS[name] for name in RELIABILITY_COMMANDS}
            | {"history": ("status:decisions", "Show the latest decisions about tools.")}
        },
        short_help="Older names of the same commands.",
        help="Older names of the same commands, such as `trustfold reliability status`.",
    )
)
