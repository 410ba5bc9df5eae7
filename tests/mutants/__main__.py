"""`make mutants`: change the folds and the guard in small ways at random, and count which changes the tests notice.

A developer's measure of the tests: a mutant that lives is a test to write, or code to delete. Mutants that are the
same program in other words are set aside, each with its reason, in `set_aside.toml`. What is known is kept in
`build/mutants`: which test runs which line, and what became of each mutant. A run that was broken off goes on there.
A test notices a mutant if it fails on it alone as well, and passes alone on the code as it is.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import os
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import mutant_runs
from mutant_runs import ROOT
from mutations import Mutant, mutants_of
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

FOLDERS = ("guard", "projections")
SUITES = ("tests/guard", "tests/projections", "tests/peers")
KEPT = ROOT / "build" / "mutants"
SET_ASIDE = Path(__file__).with_name("set_aside.toml")
TARGET = 0.9
FIRST_FILES, FIRST_TESTS = 4, 150
"""By so many tests of so many files most mutants are noticed; all others wait until every mutant has had these."""


class Verdict(NamedTuple):
    """What became of a mutant: the test that noticed it, None for a survivor, and how many tests could have."""

    mutant: Mutant
    noticed: str | None
    tests: int
    unconfirmed: list[str]
    """Tests that failed on it, but not alone, or on the unchanged code as well."""


class Trial(NamedTuple):
    """A mutant, the whole changed file, and the tests that are still to be run on it."""

    mutant: Mutant
    source: str
    tests: list[str]
    unconfirmed: list[str]

    @property
    def key(self) -> str:
        """Digest by which a verdict is found again."""
        return hashlib.sha256(f"{self.mutant.name} {self.source}".encode()).hexdigest()[:16]


def main() -> int:
    """Measure what the command line asks for; exit code 1 below the target, else 0."""
    options = _options()
    os.chdir(ROOT)
    os.nice(10)
    KEPT.mkdir(parents=True, exist_ok=True)
    aside = tomllib.loads(SET_ASIDE.read_text())
    chosen = _chosen(options, aside)
    with (
        ProcessPoolExecutor(options.processes, mp_context=get_context("spawn")) as pool,
        Progress(console=Console(stderr=True), disable=not sys.stderr.isatty()) as bar,
    ):
        try:
            record = Record(options.tests, pool, bar, fresh=options.fresh)
            verdicts = _verdicts(chosen, record, pool, bar)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            print("broken off; the same command goes on", file=sys.stderr)
            return 130
    _report(verdicts, options, len(aside.get("mutant", ())))
    return 0 if _share(verdicts) >= TARGET else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make mutants ARGS=…", description="Count mutants that the tests notice.")
    parser.add_argument("paths", nargs="*", metavar="PATH", help=f"files or folders to change [default: {FOLDERS}]")
    parser.add_argument("--count", type=int, default=240, metavar="N", help="mutants [default: 240]")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="which ones [default: 1]")
    parser.add_argument("--tests", nargs="+", default=SUITES, metavar="PATH", help=f"tests to run [default: {SUITES}]")
    parser.add_argument("--named", default="", metavar="TEXT", help="only mutants whose name contains this")
    parser.add_argument("--processes", type=int, default=2, metavar="N", help="[default: 2]")
    parser.add_argument("--fresh", action="store_true", help="forget what is known from earlier runs")
    parser.add_argument("--json", action="store_true", help="figures and survivors for programs")
    return parser.parse_args()


# --- which mutants ---------------------------------------------------------------------------------------------------


def _chosen(options: argparse.Namespace, aside: dict[str, Any]) -> list[tuple[Mutant, str]]:
    """Mutants to try, each with the changed file. The same ones as long as their names stay, whatever else changes."""
    paths = options.paths or FOLDERS
    left_out = {file["path"] for file in aside.get("file", ())}
    files = sorted(str(file.relative_to(ROOT)) for path in paths for file in _files(ROOT / path, "*.py"))
    found = [mutant for file in files if file not in left_out for mutant in mutants_of(ROOT, file)]
    equal = {mutant["name"] for mutant in aside.get("mutant", ())}
    if not options.paths and (gone := equal - {mutant.name for mutant in found}):
        print(f"{SET_ASIDE.name} names mutants that are no more: {sorted(gone)}", file=sys.stderr)
    found = [mutant for mutant in found if mutant.name not in equal and options.named in mutant.name]
    found.sort(key=lambda mutant: hashlib.sha256(f"{options.seed} {mutant.name}".encode()).digest())
    changed = ((mutant, source) for mutant in found if (source := mutant.source(ROOT)) is not None)
    return [pair for pair, _ in zip(changed, range(options.count), strict=False)]


def _files(path: str | Path, pattern: str) -> Iterable[Path]:
    """A file, or those of a folder."""
    return [Path(path)] if Path(path).is_file() else Path(path).rglob(pattern)


# --- which tests -----------------------------------------------------------------------------------------------------


class Record:
    """Which test runs which line, and how long it takes; kept in a file, measured anew for test files that changed."""

    def __init__(self, suites: Iterable[str], pool: ProcessPoolExecutor, bar: Progress, *, fresh: bool) -> None:
        sources = (Path(folder).rglob("*.py") for folder in (*FOLDERS, "rules", "schemas", "security"))
        source = _digest(*sources)
        support = [*Path("tests/support").rglob("*.py")]
        wanted = {}
        for file in sorted(file for suite in suites for file in _files(suite, "test_*.py")):
            helpers = [one for one in file.parent.glob("*.py") if not one.name.startswith("test_")]
            wanted[str(file)] = f"{source}-{_digest([file], helpers, support)}"
        self.digest = hashlib.sha256(json.dumps(wanted).encode()).hexdigest()[:16]
        self.seconds: dict[str, float] = {}
        self._by_line: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        self._at_import: dict[str, set[int]] = defaultdict(set)
        self._importers = _importers()
        runs = {}
        for name, digest in wanted.items():
            kept = KEPT / "lines" / f"{name.replace('/', '-')}-{digest}.json"
            if kept.exists() and not fresh:
                self._add(json.loads(kept.read_bytes()))
            else:
                runs[pool.submit(mutant_runs.record, name, 900.0)] = kept
        task = bar.add_task("lines that tests run", total=len(runs))
        for run in as_completed(runs):
            kept = runs[run]
            kept.parent.mkdir(exist_ok=True)
            for older in kept.parent.glob(f"{kept.name.partition('.py-')[0]}.py-*"):
                older.unlink()
            kept.write_text(json.dumps(run.result()))
            self._add(run.result())
            bar.advance(task)

    def _add(self, run: dict[str, Any]) -> None:
        self.seconds |= run["seconds"]
        names = list(run["seconds"])
        for file, lines in run["lines"].items():
            for line, numbers in lines.items():
                self._by_line[file][int(line)].update(names[number] for number in numbers if number >= 0)
                if -1 in numbers:
                    self._at_import[file].add(int(line))

    def tests_of(self, mutant: Mutant) -> list[str]:
        """Tests that could notice a mutant, the quickest first."""
        if mutant.at_import or mutant.line in self._at_import[mutant.file]:
            # Who reads what a module makes when it is imported is not recorded: this module, and those that import it.
            files = {mutant.file, *self._importers[mutant.file]}
            tests = {test for file in files for found in self._by_line[file].values() for test in found}
        else:
            tests = self._by_line[mutant.file][mutant.line]
        return sorted(tests, key=lambda test: (self.seconds[test], test))


def _digest(*files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in sorted({file for some in files for file in some}):
        digest.update(str(file).encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def _importers() -> dict[str, set[str]]:
    """For each file, those in which its module's name stands in an import; rather too many than too few."""
    found: dict[str, set[str]] = defaultdict(set)
    sources = {
        str(file.relative_to(ROOT)): file.read_text() for folder in FOLDERS for file in ROOT.glob(f"{folder}/**/*.py")
    }
    for imported in sources:
        module = Path(imported).stem
        for file, source in sources.items():
            if f"{module} import" in source or f"import {module}" in source or f" {module}," in source:
                found[imported].add(file)
    return found


# --- verdicts --------------------------------------------------------------------------------------------------------


def _verdicts(
    chosen: list[tuple[Mutant, str]], record: Record, pool: ProcessPoolExecutor, bar: Progress
) -> list[Verdict]:
    kept = KEPT / "confirmed.jsonl"
    passed = KEPT / "passed_alone" / record.digest
    rows = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    known = {one["key"]: one for one in rows}
    noticed_before = {one["name"]: one["noticed"] for one in rows}
    verdicts: list[Verdict] = []
    trials: list[Trial] = []
    for mutant, source in chosen:
        trial = Trial(mutant, source, record.tests_of(mutant), [])
        old = known.get(trial.key)
        if old is not None and (old["noticed"] is not None or old["record"] == record.digest):
            verdicts.append(Verdict(mutant, old["noticed"], len(trial.tests), old["unconfirmed"]))
        elif not trial.tests:
            verdicts.append(Verdict(mutant, None, 0, []))
        else:
            trials.append(trial)
    task = bar.add_task("mutants", total=len(chosen), completed=len(verdicts))
    with kept.open("a") as file:
        for part in (_first_of, list):
            runs: dict[Future[tuple[str | None, list[str]]], tuple[Trial, list[str]]] = {}
            for trial in trials:
                # A test that noticed the mutant in other code goes first.
                before = noticed_before.get(trial.mutant.name)
                tests = list(dict.fromkeys([*(test for test in trial.tests if test == before), *part(trial.tests)]))
                seconds = {test: record.seconds[test] for test in tests}
                run = pool.submit(mutant_runs.noticed, trial.mutant.file, trial.source, seconds, passed)
                runs[run] = (trial, tests)
            trials = []
            for run in as_completed(runs):
                trial, tests = runs[run]
                noticed, unconfirmed = run.result()
                unconfirmed = trial.unconfirmed + unconfirmed
                left = [test for test in trial.tests if test not in set(tests)]
                if noticed is None and left:
                    trials.append(trial._replace(tests=left, unconfirmed=unconfirmed))
                    continue
                verdict = Verdict(trial.mutant, noticed, len(record.tests_of(trial.mutant)), unconfirmed)
                verdicts.append(verdict)
                row = {"key": trial.key, "record": record.digest, "name": trial.mutant.name}
                row |= {"noticed": noticed, "unconfirmed": unconfirmed}
                print(json.dumps(row), file=file, flush=True)
                lived = sum(one.noticed is None for one in verdicts)
                bar.update(task, completed=len(verdicts), description=f"mutants, {lived} lived")
    return sorted(verdicts)


def _first_of(tests: list[str]) -> list[str]:
    """A few tests of the files that have most of them."""
    files = Counter(test.partition("::")[0] for test in tests)
    few = {name for name, _ in files.most_common(FIRST_FILES)}
    return [test for test in tests if test.partition("::")[0] in few][:FIRST_TESTS]


# --- report ----------------------------------------------------------------------------------------------------------


def _share(verdicts: list[Verdict]) -> float:
    return sum(one.noticed is not None for one in verdicts) / len(verdicts) if verdicts else 1.0


def _report(verdicts: list[Verdict], options: argparse.Namespace, set_aside: int) -> None:
    lived = [one for one in verdicts if one.noticed is None]
    unconfirmed = [one for one in verdicts if one.unconfirmed]
    by_file: dict[str, list[Verdict]] = defaultdict(list)
    for one in verdicts:
        by_file[one.mutant.file].append(one)
    if options.json:
        figures = {
            "seed": options.seed,
            "mutants": len(verdicts),
            "noticed": len(verdicts) - len(lived),
            "set_aside": set_aside,
            "files": {
                file: [len(some), sum(one.noticed is not None for one in some)] for file, some in by_file.items()
            },
            "survivors": [
                {"name": one.mutant.name, "line": one.mutant.line, "tests": one.tests, "diff": list(_diff(one.mutant))}
                for one in lived
            ],
            "unconfirmed": {one.mutant.name: one.unconfirmed for one in unconfirmed},
        }
        print(json.dumps(figures, indent=2))
        return
    console = Console(width=max(120, Console().width), highlight=False)
    table = Table("file", "mutants", "noticed", "lived")
    for file, some in sorted(by_file.items()):
        alive = sum(one.noticed is None for one in some)
        table.add_row(file, str(len(some)), str(len(some) - alive), str(alive or ""))
    console.print(table)
    for one in lived:
        console.print(f"\n{one.mutant.name}\n  line {one.mutant.line}; {one.tests} tests run it", markup=False)
        console.print("\n".join(_diff(one.mutant)), markup=False)
    for one in unconfirmed:
        console.print(f"\n{one.mutant.name}\n  failed, but not for this: {', '.join(one.unconfirmed)}", markup=False)
    console.print(
        f"\n{len(verdicts) - len(lived)} of {len(verdicts)} mutants noticed: {_share(verdicts):.1%}; set aside as the "
        f"same program: {set_aside}; with failures that were not for the change: {len(unconfirmed)}"
    )


def _diff(mutant: Mutant) -> Iterator[str]:
    old = (ROOT / mutant.file).read_text()
    lines = difflib.unified_diff(old.splitlines(), (mutant.source(ROOT) or old).splitlines(), lineterm="", n=1)
    return (line for line in lines if not line.startswith(("---", "+++")))


if __name__ == "__main__":
    sys.exit(main())
