"""Writes the page of programs behind a shell from the table of programs.

`python docs/programs_page.py` writes `docs/programs.md`; `--check` fails if the file differs from the table.
"""

import sys
from pathlib import Path

from trustfold.projections.calls.program_table import (
    ANSWERS,
    SERVICES,
    SHARED_AWAY,
    SHARED_REFUSED,
    AnsweringPrograms,
    ServiceSigns,
)

PAGE = Path(__file__).resolve().parent / "programs.md"

HEAD = """# Programs behind a shell

What exit codes and messages of programs mean; [Classification](classification.md#programs-behind-a-shell) says how
it is used.
Made from `projections/calls/program_table.py` by `make schemas`.

## Answers

The exit code is an answer: nothing found, not equal, not yet. The call is an informational failure, which nothing
counts.

| programs | where | exit codes | mean |
|---|---|---|---|
"""

SERVICES_HEAD = """
## Services

The service behind the program is away, or refuses the caller. It is named by the line, else by the message, else as
below.
Beside its own words, a program may say so in words that all share. *Own words only*: other programs speak through it
(tests, scripts, remote commands), so that the shared words are not its own.

| programs | service | away | refuses | own words only |
|---|---|---|---|---|
"""


def code(*words: str) -> str:
    """Words as code, for a cell of a table."""
    return ", ".join(f"`{word.strip()}`" for word in words).replace("|", "\\|")


def numbers(codes: tuple[int, ...]) -> str:
    """Exit codes; many in a row as a range."""
    return f"{codes[0]} to {codes[-1]}" if len(codes) > 8 else ", ".join(map(str, codes))


def answer(row: AnsweringPrograms) -> str:
    """A line of the first table."""
    where = [code(*row.subcommands)] if row.subcommands and row.subcommands != ("*",) else []
    where += [f"with {code(*row.options)}"] if row.options else []
    where += [f"says {code(*row.says)}"] if row.says else []
    return f"| {code(*row.programs)} | {'; '.join(where)} | {numbers(row.codes)} | {row.means} |\n"


def service(row: ServiceSigns) -> str:
    """A line of the second table."""
    away = [numbers(row.away)] if row.away else []
    away += [code(*row.says_away)] if row.says_away else []
    away += ["HTTP 429, 5xx"] if row.statuses else []
    refuses = [numbers(row.refused)] if row.refused else []
    refuses += [code(*row.says_refused)] if row.says_refused else []
    refuses += ["HTTP 401, 403, 407"] if row.statuses else []
    name = ("`program@`" if row.login else "") + (f"`{row.default}`" if row.default else "as named")
    programs = code(*row.programs) + (f" ({code(*row.subcommands)})" if row.subcommands else "")
    runs = "always" if row.runs == ("*",) else code(*row.runs)
    return f"| {programs} | {name} | {'; '.join(away)} | {'; '.join(refuses)} | {runs} |\n"


def page() -> str:
    """The page as Markdown."""
    shared = (
        f"\nWords that all share. Away: {code(*SHARED_AWAY)}. Refused, of programs with a login of their own "
        f"(`program@service`): {code(*SHARED_REFUSED)}.\n"
    )
    return "".join((HEAD, *map(answer, ANSWERS), SERVICES_HEAD, *map(service, SERVICES), shared))


def main(arguments: list[str]) -> int:
    """Write the page, or compare it with the table."""
    if arguments == ["--check"]:
        fresh = PAGE.exists() and PAGE.read_text() == page()
        if not fresh:
            sys.stderr.write("docs/programs.md: not made from the present table; run `make schemas`\n")
        return 0 if fresh else 1
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
