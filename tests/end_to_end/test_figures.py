"""Figures of pages, report, questions and commands are those counted again in plain Python, whatever the period."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from html import unescape
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner
from dashboard_kit import HERE
from recorded import lines_of, record
from recount import Figures, Recount, time_of
from starlette.testclient import TestClient
from trustfold.cli.history import history
from trustfold.cli.replay import replay
from trustfold.cli.report import report
from trustfold.history.recorder import PartitionRecorder
from trustfold.recording.files import record_files
from trustfold.rules.rules import RuleSet
from trustfold.streams.embedded.engine import EmbeddedEngine
from trustfold.streams.embedded.server import make_app
from trustfold.web.routes import more_routes
from two_days import two_days

SITUATIONS = Path(__file__).parents[1] / "situations"
PERIODS = {
    "two days": ("everything", "nothing"),
    "situations": ("a day of another zone",),
    "cipherbox_claude_code": ("everything",),
    "pi_sessions": ("from the middle of a session",),
    "tau_airline_gpt4o": ("an hour",),
}
"""Periods of each run: each kind of both stands at least once."""
Row = Mapping[str, Any]
Figure = tuple[str, Any, Any]
"""Name of a figure, its value where it is shown, and its value counted again."""


def with_questions() -> list[bytes]:
    """Two days of three models; some calls wait for a person, who grants, denies or does not answer."""
    made: list[bytes] = []
    for number, (_, value) in enumerate(two_days()):
        event = orjson.loads(value)
        if event["type"] == "tool_call.finished" and number % 5 == 0:
            place = {name: event[name] for name in ("session_id", "workspace_id", "call_id", "tool_name", "model")}
            for kind, before in (("permission.requested", 1500), ("permission.resolved", 500)):
                if kind == "permission.requested" or number % 3:
                    at = datetime.fromisoformat(event["time"]) - timedelta(milliseconds=before)
                    own = {"schema_version": "1.0", "id": f"{kind}-{number}", "type": kind, "time": at.isoformat()}
                    answer = {} if kind == "permission.requested" else {"granted": number % 2 == 0}
                    made.append(orjson.dumps(own | place | answer))
        made.append(value)
    return made


def situations() -> list[bytes]:
    """Some hundred sessions of many agents, in the order of their times."""
    lines = [
        line for name in ("silent", "speaking") for line in (SITUATIONS / f"{name}.ndjson").read_bytes().splitlines()
    ]
    return [orjson.dumps(one) for line in lines for one in orjson.loads(line)["events"]]


MADE = {"two days": with_questions, "situations": situations}


class Shown:
    """Reader of the figures that pages, report, questions and commands show of one history."""

    def __init__(self, run: str, client: TestClient, root: Path, file: Path) -> None:
        self.run, self.client, self.root, self.file = run, client, root, file
        self.query: dict[str, str] = {}
        self.options: list[str] = []

    def narrow(self, begin: datetime | None, end: datetime | None) -> None:
        """Choose a period."""
        self.query = {"since": f"{begin.isoformat()}+00:00" if begin else "all"}
        self.query |= {"until": f"{end.isoformat()}+00:00"} if end else {}
        self.options = [f"--{name}={value}" for name, value in self.query.items() if value != "all"]

    def page(self, path: str, **query: str) -> str:
        """Text of a page, without its markup."""
        answer = self.client.get(path, params=self.query | query)
        assert answer.status_code == 200, (path, answer.text[:300])
        assert "cannot be read" not in answer.text
        return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", answer.text)))

    def rows(self, question: str) -> list[Row]:
        """Rows of a question."""
        return self.json(f"/history/{question}.json", rows="10000")

    def downloaded(self, path: str, name: str) -> list[Row]:
        """Rows of a page's table."""
        return self.json(path, download=f"{name}.json")

    def json(self, path: str, **query: str) -> list[Row]:
        """Rows as a page gives them."""
        answer = self.client.get(path, params=self.query | query)
        assert answer.headers["Content-Type"] == "application/json", answer.text
        found: list[Row] = answer.json()
        return found

    def told(self, question: str) -> list[Row]:
        """Rows of a question on the command line."""
        found: list[Row] = orjson.loads(self.ran(history, question, "--json", "--limit", "100000"))["rows"]
        return found

    def ran(self, command: Any, *words: str) -> str:
        """Output of a command about the history."""
        done = CliRunner().invoke(command, [*words, *self.options, "--history", str(self.root)])
        assert done.exit_code == 0, done.output
        return done.stdout

    def report(self) -> str:
        """Text of the report's page."""
        file = self.root.parent / "report.html"
        self.ran(report, "--html", str(file))
        return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", file.read_text())))


def number(text: str, pattern: str) -> int:
    """Number that a text names; 0 if it does not."""
    found = re.search(pattern.replace("N", r"([\d,]+)"), text)
    return int(found[1].replace(",", "")) if found else 0


def ratio(text: str, pattern: str) -> tuple[int, int]:
    """Hits and trials that a text names as (H/T) where a pattern has N."""
    found = re.search(pattern.replace("N", r"\(([\d,]+)/([\d,]+)\)"), text)
    return (int(found[1].replace(",", "")), int(found[2].replace(",", ""))) if found else (0, 0)


def moment(text: str | None) -> datetime | None:
    """A time of JSON, without its zone."""
    return datetime.fromisoformat(text).replace(tzinfo=None) if text else None


def by(rows: Sequence[Row], key: str | tuple[str, ...], *values: str) -> dict[Any, Any]:
    """Columns of rows by others."""

    def taken(row: Row, names: tuple[str, ...]) -> Any:
        return row[names[0]] if len(names) == 1 else tuple(row[name] for name in names)

    return {taken(row, (key,) if isinstance(key, str) else key): taken(row, values) for row in rows}


def nonzero(found: Mapping[Any, Any]) -> dict[Any, Any]:
    """Without what is 0."""
    return {key: value for key, value in found.items() if value}


def seconds(value: float | None) -> float | None:
    """A duration as it is compared."""
    return None if value is None else round(value, 3)


def surfaces(shown: Shown, real: Figures) -> Iterator[Figure]:
    """Figures of pages, questions and commands."""
    yield from _overview(shown, real)
    yield from _tools(shown, real)
    yield from _failures(shown, real)
    yield from _behaviour(shown, real)
    yield from _models(shown, real)
    yield from _trust(shown, real)
    yield from _people(shown, real)


def _overview(shown: Shown, real: Figures) -> Iterator[Figure]:
    text, (one,) = shown.page("/history"), shown.told("overview")
    if real["events"]:
        yield "page: events", number(text, "N event"), real["events"]
        yield "page: sessions", number(text, r"of N session"), real["sessions"]
        yield "page: calls", number(text, r"; N call"), real["calls"]
        yield "page: failures", number(text, r"of which N failed"), real["failed calls"]
        yield "page: lost", number(text, r"and N never ended"), real["lost calls"]
        yield "page: reported", number(text, r"N failures? reported"), real["reported failures"]
    else:
        yield "page: nothing", "Nothing is recorded of this" in text, True
    for column, name in (
        ("events", "events"), ("sessions", "sessions"), ("calls", "calls"), ("failures", "failed calls"),
        ("lost", "lost calls"), ("reported", "reported failures"),
    ):  # fmt: skip
        yield f"command: {name}", one[column], real[name]
    yield "command: first event", moment(one["first"]), real["first event"]
    yield "command: last event", moment(one["last"]), real["last event"]
    yield "page: decisions", len(shown.rows("recent")), min(real["decisions"], 10_000)
    yield "command: decisions", len(shown.told("recent")), real["decisions"]


def _tools(shown: Shown, real: Figures) -> Iterator[Figure]:
    text, rows = shown.page("/history/tools"), shown.rows("tools")
    busy = {tool for tool, (calls, _, _) in real["calls by tool"].items() if calls >= 20}

    def chosen(name: str) -> Figures:
        return {tool: value for tool, value in real[name].items() if tool in busy}

    if busy:
        yield (
            "question tools: failed of judged",
            ratio(text, "N of the calls failed"),
            (real["failed calls"], real["judged calls"]),
        )
    yield "question tools: calls", by(rows, "tool", "calls", "failures", "judged"), chosen("calls by tool")
    yield "question tools: sessions", by(rows, "tool", "sessions"), chosen("sessions by tool")
    yield "question tools: denied", by(rows, "tool", "denied"), chosen("denied calls by tool")
    yield "question tools: lost", by(rows, "tool", "lost"), chosen("lost calls by tool")
    yield (
        "question tools: half within",
        {tool: seconds(value) for tool, value in by(rows, "tool", "p50_ms").items()},
        chosen("half within by tool"),
    )
    yield (
        "question tools: 95 % within",
        {tool: seconds(value) for tool, value in by(rows, "tool", "p95_ms").items()},
        chosen("95 % within by tool"),
    )
    yield (
        "question tools: last call",
        {row["tool"]: moment(row["last_call"]) for row in rows},
        chosen("last call by tool"),
    )
    tools = [row for row in shown.downloaded("/tools", "every-tool") if not row["tool"].startswith("service:")]
    yield "page of tools: calls", by(tools, "tool", "calls", "failures", "judged"), real["calls by tool"]
    yield "page of tools: sessions", by(tools, "tool", "sessions"), real["sessions by tool"]
    yield (
        "page of tools: 95 % within",
        {row["tool"]: seconds(row["p95_ms"]) for row in tools},
        real["95 % within by tool"],
    )
    for tool, (calls, bad, judged) in list(real["calls by tool"].items())[:2]:
        page = shown.page(f"/tools/{tool}")
        yield f"page of {tool}: calls", number(page, "N calls in [0-9,]+ session"), calls
        yield f"page of {tool}: sessions", number(page, "[0-9,]+ calls in N session"), real["sessions by tool"][tool]
        yield f"page of {tool}: failures", number(page, "N failures refused"), bad
        if judged >= 10:
            yield f"page of {tool}: rate", ratio(page, "% N, [0-9.<]+ % to"), (bad, judged)
        over = shown.downloaded(f"/tools/{tool}", "over-time")
        yield (
            f"page of {tool}: over time",
            [sum(row[name] for row in over) for name in ("calls", "failures", "judged")],
            [calls, bad, judged],
        )
        kinds = shown.downloaded(f"/tools/{tool}", "failures-of")
        yield f"page of {tool}: failures by signature", sum(row["failures"] for row in kinds), bad
        for column in ("model", "session_id"):
            parts = shown.downloaded(f"/tools/{tool}", f"by-{column}")
            yield f"page of {tool}: by {column}", sum(row["calls"] for row in parts), calls
    cells = by(shown.rows("models"), ("tool", "model"), "calls", "failures", "judged")
    yield "question models", cells, real["calls by tool and model"]


def _failures(shown: Shown, real: Figures) -> Iterator[Figure]:
    text, rows = shown.page("/history/signatures"), shown.rows("signatures")
    if rows:
        yield "question signatures: failures", number(text, "N failures?, [0-9,]+ of them"), real["failures"]
        yield "question signatures: different", number(text, ", N of them different"), real["different failures"]
        yield (
            "question signatures: most frequent",
            number(text, "most frequent, N time"),
            max(real["signatures seen twice"].values()),
        )
        yield (
            "question signatures: its sessions",
            number(text, "times in N session"),
            real["sessions of the most frequent signature"],
        )
    yield "question signatures", by(rows, "signature", "failures"), real["signatures seen twice"]
    text, rows = shown.page("/history/failures"), shown.rows("failures")
    if rows:
        yield "question failures: all", number(text, "N failures?, most on"), real["failures"]
        yield (
            "question failures: most of a day",
            number(text, r"most on [0-9-]+ \(N\)"),
            max(real["failures by day"].values()),
        )
        yield (
            "question failures: most of a kind",
            ratio(text, "most are [^;]* N;"),
            (max(real["failures by severity"].values()), real["failures"]),
        )
    days: dict[Any, int] = {}
    for row in rows:
        days[moment(row["day"]).date()] = days.get(moment(row["day"]).date(), 0) + row["failures"]
    yield "question failures: days", days, real["failures by day"]


def _behaviour(shown: Shown, real: Figures) -> Iterator[Figure]:
    text, rows = shown.page("/history/loops"), shown.rows("loops")
    if rows:
        yield "question loops: calls", number(text, "Loops took N call"), real["wasted calls"]
        yield "question loops: seconds", number(text, "calls?, N s of the tools"), real["wasted seconds"]
    yield "question loops: by tool", by(rows, "tool", "loops"), real["loops by tool"]
    yield "question loops: calls by tool", by(rows, "tool", "wasted_calls"), real["wasted calls by tool"]
    yield "question loops: longest", by(rows, "tool", "longest"), real["longest loop by tool"]
    text, rows = shown.page("/history/loop-costs"), shown.rows("loop-costs")
    yield "question loop-costs: calls", number(text, "Loops took N call"), real["wasted calls"]
    yield "question loop-costs: by model", by(rows, "model", "wasted_calls"), real["wasted calls by model"]
    text, rows = shown.page("/history/patterns"), shown.rows("patterns")
    yield "question patterns: times", number(text, "Stuck N time"), real["times stuck"]
    yield "question patterns", by(rows, ("pattern", "model"), "times"), real["times stuck by pattern and model"]
    yield (
        "question patterns: severe",
        nonzero(by(rows, ("pattern", "model"), "severe")),
        real["severely stuck by pattern and model"],
    )
    yield (
        "question patterns: sessions",
        by(rows, ("pattern", "model"), "sessions"),
        real["stuck sessions by pattern and model"],
    )
    yield (
        "question patterns: of sessions",
        {row["model"]: row["of_sessions"] for row in rows},
        {
            model: count
            for model, count in real["active sessions by model"].items()
            if model in real["stuck sessions by model"]
        },
    )
    rows = shown.rows("nudges")
    yield "question nudges: issued", sum(row["issued"] for row in rows), real["nudges"]
    yield (
        "question nudges",
        {row["nudge"]: row["issued"] for row in rows},
        {f"{pattern} {kind}": n for (pattern, kind), n in real["nudges by kind"].items()},
    )
    rows = shown.rows("sessions")
    yield "question sessions: stuck", len(rows), real["stuck sessions"]
    yield "question sessions: patterns", by(rows, "session_id", "patterns"), real["pattern reports by session"]
    yield "question sessions: calls", nonzero(by(rows, "session_id", "calls")), real["calls of stuck sessions"]
    yield "question sessions: failures", nonzero(by(rows, "session_id", "failures")), real["failures of stuck sessions"]
    rows = shown.rows("look-first")
    yield (
        "question look-first",
        nonzero(by(rows, "session_id", "led_nowhere")),
        real["calls that led nowhere by session"],
    )
    yield (
        "question look-first: calls",
        {row["session_id"]: row["calls"] for row in rows if row["calls"]},
        {name: real["calls by session"][name][0] for name in [row["session_id"] for row in rows if row["calls"]]},
    )


def _models(shown: Shown, real: Figures) -> Iterator[Figure]:
    rows = shown.downloaded("/models", "every-model")
    known = [row for row in rows if row["calls"]]
    yield "page of models: calls", by(known, "model", "calls", "failures", "judged"), real["calls by model"]
    yield "page of models: own making", by(known, "model", "own_making"), real["failures of its own making by model"]
    yield "page of models: sessions", by(rows, "model", "sessions"), real["active sessions by model"]
    yield "page of models: stuck", nonzero(by(rows, "model", "stuck")), real["stuck sessions by model"]
    yield "page of models: patterns", sum(row["patterns"] for row in rows), real["times stuck"]


def _trust(shown: Shown, real: Figures) -> Iterator[Figure]:
    text, rows = shown.page("/history/recovery"), shown.rows("recovery")
    yield "question recovery: outages", number(text, "N outages?, of which"), real["outages"]
    yield "question recovery: ended", number(text, "of which N have ended"), real["outages that ended"]
    yield "question recovery", by(rows, ("machine", "subject"), "outages"), real["outages by key"]
    yield (
        "question recovery: median",
        {(row["machine"], row["subject"]): seconds(row["median"]) for row in rows},
        real["median seconds to recovery by key"],
    )
    circuits: dict[str, int] = {}
    for row in shown.rows("breakers"):
        circuits[row["circuit"]] = circuits.get(row["circuit"], 0) + 1
    yield "question breakers", circuits, real["openings by circuit"]


def _people(shown: Shown, real: Figures) -> Iterator[Figure]:
    text, rows = shown.page("/history/asks"), shown.rows("asks")
    if rows:
        yield "question asks: asked", number(text, "asked N time"), real["questions"]
        yield (
            "question asks: for nothing",
            ratio(text, "of their answers [0-9.]+ % N allowed"),
            (real["questions for nothing"], real["answers"]),
        )
        yield "question asks: unanswered", number(text, "; N unanswered"), real["questions"] - real["answers"]
    yield "question asks: granted", sum(row["granted_times"] for row in rows), real["granted"]
    yield "question asks: denied", sum(row["denied"] for row in rows), real["answers"] - real["granted"]
    text, rows = shown.page("/history/retries"), shown.rows("retries")
    if rows:
        yield "question retries: of", number(text, r"Of N retr"), real["retries"]
        yield "question retries: succeeded", ratio(text, "N succeeded"), (real["retries that worked"], real["retries"])
    yield "question retries", by(rows, ("tool", "kind"), "retried"), real["retries by tool and kind"]
    yield (
        "question retries: worked",
        nonzero(by(rows, ("tool", "kind"), "succeeded")),
        real["retries that worked by tool and kind"],
    )
    yield "question dead-letters", sum(row["records"] for row in shown.rows("dead-letters")), 0


def _report(shown: Shown, real: Figures) -> Iterator[Figure]:
    """Tiles and sentences of the report's page, all of one period."""
    text = shown.report()

    def tile(name: str) -> tuple[int, int]:
        found = re.search(rf"{name}(?: [▲▼] \w+)? ([\d,]+) of ([\d,]+) ", text)
        return (int(found[1].replace(",", "")), int(found[2].replace(",", ""))) if found else (0, 0)

    if not real["events"]:
        return
    yield "report: failed", tile("of the calls failed"), (real["failed calls"], real["judged calls"])
    yield (
        "report: stuck",
        tile("of the sessions were stuck"),
        (real["stuck sessions"], real["sessions with calls or patterns"]),
    )
    yield "report: for nothing", tile("of the calls were for nothing"), (real["wasted calls"], real["calls"])
    yield "report: seconds", number(text, "repeated a known result in a loop: N s of the tools"), real["wasted seconds"]
    yield "report: outages", number(text, "N outages began"), real["outages"]
    yield "report: calls", number(text, "N calls of [0-9,]+ session"), real["calls"]
    yield (
        "report: overview",
        (number(text, "; N calls?, of which"), number(text, "of which N failed")),
        (real["calls"], real["failed calls"]),
    )
    if any(calls >= 20 for calls, _, _ in real["calls by tool"].values()):
        yield (
            "report: sentence of tools",
            ratio(text, "N of the calls failed; worst"),
            (real["failed calls"], real["judged calls"]),
        )
    if real["signatures seen twice"]:
        yield "report: sentence of signatures", number(text, "N failures?, [0-9,]+ of them different"), real["failures"]
    if real["failures"]:
        yield "report: sentence of failures", number(text, "N failures?, most on"), real["failures"]
    yield "report: sentence of patterns", number(text, "Stuck N time"), real["times stuck"]
    yield "report: sentence of loops", number(text, "Loops took N call"), real["wasted calls"]
    yield "report: sentence of recovery", number(text, "N outages?, of which"), real["outages"]
    yield (
        "report: asked for nothing",
        tile("of the questions were for nothing"),
        (real["questions for nothing"], real["answers"]),
    )


@contextmanager
def serving(folder: Path) -> Iterator[TestClient]:
    """A client of `up` over an empty store, whose pages read a history."""
    store = folder / "store.sqlite"

    def more(*words: Any, **named: Any) -> Any:
        return more_routes(*words, history=folder / "h", **named)

    with TestClient(make_app(EmbeddedEngine.open(store, RuleSet()), store, more=more), base_url=HERE) as client:
        yield client


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=() if name == "two days" else pytest.mark.slow) for name in PERIODS],
)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Recount, Shown]]:
    """A run counted again, and what is shown of its history."""
    name = request.param
    folder = tmp_path_factory.mktemp("figures")
    lines = MADE[name]() if name in MADE else lines_of(name)
    file = folder / "events.ndjson"
    file.write_bytes(b"\n".join(lines))
    if name == "two days":
        record(folder / "h", [("events", line) for line in lines], rules=RuleSet(), live=True)
    else:
        recorder = PartitionRecorder(folder / "h")
        record_files(recorder, (str(file),), RuleSet())
        recorder.close()
        (folder / "h" / ".source").unlink()  # pages show no history of another source than their own
    with serving(folder) as client:
        yield Recount(lines, RuleSet()), Shown(name, client, folder / "h", file)


def period(recount: Recount, name: str) -> tuple[datetime | None, datetime | None]:
    """Begin and end of a period of a run."""
    events = list(recount.events.values())
    times = sorted(map(time_of, events))
    ((longest, _),) = Counter(one["session_id"] for one in events).most_common(1)
    own = sorted(time_of(one) for one in events if one["session_id"] == longest)
    middle = own[len(own) // 2] + timedelta(milliseconds=1)
    gap = max(pairwise(times), key=lambda pair: pair[1] - pair[0])
    night = datetime.combine(middle.date(), datetime.min.time()) - timedelta(hours=5, minutes=30)
    return {
        "everything": (None, None),
        "from the middle of a session": (middle, None),
        "an hour": (middle - timedelta(minutes=20), middle + timedelta(minutes=40)),
        "nothing": (gap[0] + timedelta(milliseconds=1), gap[0] + (gap[1] - gap[0]) / 2),
        "a day of another zone": (night, night + timedelta(days=1)),
    }[name]


def test_every_figure_is_the_one_counted_again(run: tuple[Recount, Shown], subtests: pytest.Subtests) -> None:
    """Of pages, questions, report and commands; each sentence says what the overview of the same period says."""
    recount, shown = run
    for name in PERIODS[shown.run]:
        with subtests.test(name):
            bounds = period(recount, name)
            shown.narrow(*bounds)
            real = recount.figures(*bounds)
            compared = list(surfaces(shown, real))
            last = max(map(time_of, recount.events.values()))
            week = bounds[0] or last - timedelta(days=7)
            compared += _report(shown, recount.figures(week, bounds[1]))
            assert len(compared) >= (60 if real["events"] else 50)
            differing = [
                f"{what}: shown {value!r}, counted {again!r}" for what, value, again in compared if value != again
            ]
            assert not differing, "\n".join(differing)


@pytest.mark.parametrize("run", ["two days", pytest.param("pi_sessions", marks=pytest.mark.slow)], indirect=True)
def test_a_replay_decides_what_the_history_holds(run: tuple[Recount, Shown]) -> None:
    """`trustfold replay` counts as many decisions, of each kind, as were counted again."""
    recount, shown = run
    done = CliRunner().invoke(replay, ["--limit", "1", str(shown.file)])
    assert number(done.stderr, "N decisions?") == len(recount.decisions)
    for kind in {one["type"] for one in recount.decisions}:
        assert number(done.stderr, rf"\b{re.escape(kind)} N") == len(recount.of(kind)), kind
