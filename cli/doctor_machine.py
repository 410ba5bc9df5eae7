"""Machine checks of `trustfold doctor`: versions, variables, files, stores, servers, hooks, disks."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from .. import __version__
from ..config import ENVIRONMENT, EnvironmentSettings, RuleFiles
from ..errors import DOCS, ConfigError, TrustfoldError, add_extra
from ..guard.settings import ENVIRONMENT as GUARD
from ..integrations.hook_client import ANSWER_S, MAX_READ_BYTES, PAUSE_S
from ..schemas.decision_text import counted
from ..security.private_files import existing, is_read_only
from ..streams.embedded.store_views import StoreViews
from ..streams.kafka.kafka_settings import ENVIRONMENT as WORKER
from .clients.client import TargetRights
from .clients.http import HttpTarget
from .connect import ConnectionFile, double_count_warning
from .service import UserService

# Libraries whose version is told, and the extra that brings each
LIBRARIES = {
    "aiokafka": "kafka",
    "faust-streaming": "kafka",
    "rocksdict": "rocksdb",
    "duckdb": "history",
    "starlette": "web",
    "uvicorn": "web",
    "prometheus-client": "metrics",
}


LOW_BYTES = 1 << 30  # Free space in bytes below which a disk counts as nearly full: an hour of a busy deployment


LOW_SHARE = 0.05


class CheckStatus(StrEnum):
    """Status of a check."""

    OK = "ok"
    NOTE = "note"  # Works, with a remark
    SKIPPED = "skipped"  # Could not be checked, or there is nothing to check
    FIX = "fix"


OK, NOTE, SKIPPED, FIX = CheckStatus


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """The outcome of one check."""

    check: str  # what was looked at
    status: CheckStatus
    found: str  # what was found, or why the check was skipped
    advice: str = ""  # what to do; empty if nothing


def examine_installation() -> Iterator[CheckFinding]:
    """Check installed versions, extras and the names of environment variables."""
    yield from _versions()
    yield from _variables()


def examine_machine(settings: EnvironmentSettings) -> Iterator[CheckFinding]:
    """Check files of rules, store, history, the running `up` and agents' hooks."""
    yield _file("rules", "TRUSTFOLD_RULES", settings.rules_file, lambda path: RuleFiles(path).load())
    yield _file("policies", "TRUSTFOLD_POLICIES", settings.policies_file, lambda path: RuleFiles(None, path).load())
    yield _environment_rules(settings)
    yield _store(settings.db)
    yield _history(settings.history)
    yield _server(settings)
    yield from _hooks()


def _versions() -> Iterator[CheckFinding]:
    found, missing = [], set()
    for library, extra in LIBRARIES.items():
        try:
            found.append(f"{library} {version(library)}")
        except PackageNotFoundError:
            missing.add(extra)
    ours = [f"trustfold {__version__}", f"Python {platform.python_version()}", *found]
    yield CheckFinding("versions", OK, ", ".join(ours))
    if missing:
        names = sorted(missing)
        yield CheckFinding("extras", NOTE, f"not installed: {', '.join(names)}", f"if wanted, {add_extra(*names)}")


def _variables() -> Iterator[CheckFinding]:
    given = sorted(name for name in os.environ if name.startswith("TRUSTFOLD_"))
    unknown = [name for name in given if name not in KNOWN_VARIABLES]
    yield CheckFinding("environment", OK, ", ".join(name for name in given if name not in unknown) or "nothing is set")
    for name in unknown:
        near = get_close_matches(name, KNOWN_VARIABLES, n=1, cutoff=0.8)
        advice = f"did you mean {near[0]}?" if near else f"{DOCS}/operating.md#environment lists every variable"
        yield CheckFinding("environment", NOTE, f"{name} is set, but no setting has that name", advice)


def _file(check: str, variable: str, path: Path | None, load: Callable[[Path], object]) -> CheckFinding:
    if path is None:
        return CheckFinding(check, SKIPPED, f"no file is named ({variable}): defaults apply")
    try:
        load(path)
    except TrustfoldError as error:
        return CheckFinding(check, FIX, str(error), f"correct the file, or change {variable}")
    return CheckFinding(check, OK, f"{path} loads")


def _environment_rules(settings: EnvironmentSettings) -> CheckFinding:
    try:
        settings.environment()
    except ConfigError as error:
        return CheckFinding("settings", FIX, str(error), "correct that variable")
    if not settings.enabled:
        return CheckFinding("settings", NOTE, settings.switched_off, "unset TRUSTFOLD_ENABLED to enable decisions")
    return CheckFinding("settings", OK, "the environment's settings are valid")


def _store(path: Path) -> CheckFinding:
    if not path.exists():
        place = disk("store", path, "TRUSTFOLD_DB")
        if place.status is not OK:
            return place
        return CheckFinding("store", SKIPPED, f"{path} does not exist yet; `trustfold up` creates it")
    try:
        with closing(StoreViews.open(path)) as views:
            fault = views.noted("rules_fault")
            outputs = views.next_offset() - 1
    except TrustfoldError as error:
        return CheckFinding("store", FIX, str(error), "see the message, or name another store (TRUSTFOLD_DB)")
    if fault:
        return CheckFinding("store", FIX, f"{path}: the rules in force are older: {fault}", "correct the rules file")
    place = disk("store", path, "TRUSTFOLD_DB")
    return place if place.status is not OK else CheckFinding("store", OK, f"{outputs:,} outputs; {place.found}")


def _history(path: Path) -> CheckFinding:
    try:
        from ..history.locations import address_of

        address = address_of(path)
    except ImportError as missing:
        return CheckFinding("history", SKIPPED, f"DuckDB is not installed here ({missing})")
    except ConfigError as fault:
        return CheckFinding("history", FIX, str(fault), "name a directory or a store (TRUSTFOLD_HISTORY)")
    if address is not None:
        found = f"{address} is an object store: `history`, `report`, `sql` and `whatif` read it"
        return CheckFinding("history", NOTE, found, "`record`, `up` and `web` need a local directory")
    if not path.exists():
        place = disk("history", path, "TRUSTFOLD_HISTORY")
        if place.status is not OK:
            return place
        return CheckFinding("history", SKIPPED, f"{path} does not exist yet; `trustfold record` creates it")
    if not path.is_dir():
        return CheckFinding("history", FIX, f"{path} is not a directory", "name a directory (TRUSTFOLD_HISTORY)")
    return disk("history", path, "TRUSTFOLD_HISTORY")


def _server(settings: EnvironmentSettings) -> CheckFinding:
    url, token, own = settings.url, settings.token, ""
    if not url:
        service = UserService()
        if (running := service.running()) is None:
            return CheckFinding(
                "server", SKIPPED, "no running `up` is named (TRUSTFOLD_URL), and this user's does not run"
            )
        url, token, own = running[1], service.token, "this user's, "
    try:
        target = HttpTarget(url, TargetRights(token))
        overview, unheard = target.overview(), target.webhook_fault()
    except TrustfoldError as error:
        return CheckFinding("server", FIX, str(error), "start `trustfold up` there, or correct TRUSTFOLD_URL, _TOKEN")
    if overview.fault:
        return CheckFinding("server", FIX, f"{url} uses older rules: {overview.fault}", "correct the file")
    if unheard:
        found = f"{url} tells nobody of incidents, its webhook did not accept the latest notice: {unheard}"
        return CheckFinding("server", FIX, found, "see to the receiver, or correct its TRUSTFOLD_WEBHOOK")
    return CheckFinding("server", OK, f"{own}{url} answers; {counted(len(overview.states), 'key')}")


def _hooks() -> Iterator[CheckFinding]:
    """Findings about connected agents, and whether their hooks reach the server."""
    service = UserService()
    connections = ConnectionFile(service.home).faults()
    if not connections:
        yield CheckFinding("agent hooks", SKIPPED, "no agent is connected; `trustfold connect AGENT` does")
        return
    found = service.running()
    reporting: dict[str, dict[str, object]] = {}
    faults: dict[str, int] = {}
    if found is None:
        yield CheckFinding("agent hooks", FIX, "the server they call does not answer", "trustfold up --detach")
    else:
        try:
            report = HttpTarget(found[1], TargetRights(service.token)).hooks()
            reporting, faults = report.agents, report.faults
        except TrustfoldError as error:
            yield CheckFinding("agent hooks", FIX, str(error), "trustfold up --stop; trustfold up --detach")
        if not service.socket.is_socket():
            yield CheckFinding(
                "agent hooks", FIX, f"the server has no socket for them at {service.socket}",
                f"chmod 700 {shlex.quote(str(service.home))}; trustfold up --stop; trustfold up --detach",
            )  # fmt: skip
    if late := service.latest_timeout():
        yield CheckFinding(
            "agent hooks", NOTE, f"at {late} one had no answer within {ANSWER_S:g} s: agents went on "
            f"without trustfold, and their hooks did not ask it for {PAUSE_S:.0f} s",
        )  # fmt: skip
    if faults:
        reasons = ", ".join(f"{reason} {number:,}" for reason, number in sorted(faults.items()))
        yield CheckFinding(
            "agent hooks", NOTE, f"not evaluated, and so let pass, since the server started: {reasons} "
            f"(too_large: more than {MAX_READ_BYTES >> 20} MiB, or too many names)",
        )  # fmt: skip
    for agent, file, fault in connections:
        count = reporting.get(agent, {}).get("hooks", 0)
        if fault:
            yield CheckFinding(
                "agent hooks", FIX, f"{agent}: {file}: {fault}", f"correct it; trustfold connect {agent}"
            )
        else:
            yield CheckFinding("agent hooks", OK, f"{agent}: {file}; {count} received since the server started")
            if twice := double_count_warning(agent):
                yield CheckFinding("agent hooks", NOTE, twice)


def disk(check: str, path: Path, variable: str) -> CheckFinding:
    """Finding whether a file or directory, existing or not, can be written and has space left.

    `variable` names another place.
    """
    place = existing(path)
    directory = place if place.is_dir() else place.parent
    if is_read_only(place):
        found = f"{path} cannot be written: the file system of {directory} is mounted read-only"
        return CheckFinding(check, FIX, found, f"mount it for writing, or name another place ({variable})")
    for one in (place, directory):
        if not os.access(one, os.W_OK):
            found = f"{path} cannot be written: this user may not write {one}"
            return CheckFinding(check, FIX, found, f"give this user the right, or name another place ({variable})")
    total, _, free = shutil.disk_usage(directory)
    found = f"{path}: {_size(free)} free of {_size(total)}"
    if free < LOW_BYTES or free < total * LOW_SHARE:
        advice = f"free some space in {directory}: a full disk stops all writing; or name another place ({variable})"
        return CheckFinding(check, FIX, f"{found}: the disk is {'nearly ' if free else ''}full", advice)
    return CheckFinding(check, OK, found)


def _size(number: int) -> str:
    """Number of bytes as text, in the largest of KiB, MiB and GiB of which there is one."""
    unit = next((unit for unit in (30, 20) if number >= 1 << unit), 10)
    return f"{number / (1 << unit):,.1f} {'GiB' if unit == 30 else 'MiB' if unit == 20 else 'KiB'}"


def is_for_kafka(name: str) -> bool:
    """True if a variable is a Kafka setting."""
    return name.startswith(("TRUSTFOLD_SASL_", "TRUSTFOLD_SSL_", "TRUSTFOLD_SECURITY_"))


# Names of all variables that trustfold reads
KNOWN_VARIABLES = frozenset({*ENVIRONMENT, *GUARD, *WORKER, "TRUSTFOLD_REDACT_EMAILS", "TRUSTFOLD_KAFKA_HOME"})
