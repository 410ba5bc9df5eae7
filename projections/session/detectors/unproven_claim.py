"""Detector of a claim that checks pass although the last one failed."""

from __future__ import annotations

import re

from ....schemas.vocabulary import PatternType
from ...calls.fingerprints import digest
from ..records import ActivePattern, CallRecord, EventContext, PatternSighting
from .detector import FinishedCall, PatternDetector, SpokenText

MAX_TEXT_CHARS = 2000
_RUNNERS = frozenset(
    """pytest tox nox jest vitest mocha playwright cargo go mvn mvnw gradle gradlew npm pnpm yarn bun npx tsc make just
    ruff mypy pyright eslint ctest dotnet rspec phpunit python python3 uv poetry mise bazel swift mix rake deno
    unittest""".split()
)
_CHECK = re.compile(
    rb"\b(?:pytest|tox|nox|jest|vitest|mocha|tsc|mypy|pyright|eslint|ctest|rspec|phpunit|unittest|ruff check"
    rb"|playwright test|(?:cargo|go|dotnet|swift|mix|deno|bazel) (?:test|check|build|clippy|vet|lint)"
    rb"|(?:mvnw?|gradlew?|gradle)\b[^|;&\n]{0,80}\b(?:test|verify|package|compile|build|check)"
    rb"|(?:npm|pnpm|yarn|bun)(?: run)? (?:test|build|check|lint|typecheck|type-check|ci)"
    rb"|(?:make|just|rake|mise run) (?:test|tests|check|build|all|ci|lint|spec))\b"
)
# English, and what claims most in German, French, Spanish, Portuguese, Italian, Chinese, Japanese and Korean
_CLAIM = re.compile(
    r"\b(?:all (?:the )?(?:\d{1,6} )?(?:unit |integration )?(?:tests|checks|suites)(?: \w{1,20})? (?:now )?"
    r"(?:pass|passed|passing|succeed|are green|are passing|green)"
    r"|(?:tests|build|lint|type ?check|checks|suite) (?:now )?"
    r"(?:passes|pass|passed|is passing|are passing|succeeds|is green|are green|is clean)"
    r"|alle (?:\d{1,6} )?(?:unit-?)?tests (?:\w{1,20} ){0,3}(?:erfolgreich|bestanden|grün|durch)"
    r"|tous les tests (?:\w{1,20} ){0,2}(?:passent|réussissent|réussis|passés|verts)"
    r"|(?:tod[ao]s l[ao]s (?:pruebas|tests)|todos os testes|tutti i test) (?:\w{1,20} ){0,2}"
    r"(?:pasan|pasaron|passam|passaram|passano|pasando|passando))\b"
    r"|所有(?:的)?(?:单元|單元)?[测測][试試][^。\n]{0,8}通[过過]|(?:全て|すべて|全)の?テスト[^。\n]{0,8}(?:成功|通過|パス|合格)"
    r"|모든 테스트[^.\n]{0,8}통과",
    re.IGNORECASE,
)
_DOUBT = re.compile(
    r"\b(?:not|except|once|if|when|until|should|will|would|before|after|unless|ensure|verify|make sure|so that|to"
    r"|pre-existing|unrelated|whether|expected|fail\w{0,4}|nicht|wenn|sobald|falls|sollten?|außer|bis|ob|pas|si|quand"
    r"|devraient|sauf|cuando|salvo|deberían|excepto|se|quando|não|non)\b|n't\b|n’t\b"
    r"|未|没|沒|不|如果|应|應|除|まで|ない|はず|ません|않|면",
    re.IGNORECASE,
)


# A message that says what fails makes no false claim
_FAILS = re.compile(r"\b(?:still|one|two|\d{1,4}|which|that|it) fails?\b|\bfailing\b|\bis red\b", re.IGNORECASE)


class UnprovenClaim(PatternDetector, array_like=True):
    """Detector of a final text that says that tests, a build or checks pass, although the last check failed.

    Holds at the end of a turn whose last message claims it, without a doubt in the sentence, when the latest check that
    was run in the session failed and nothing was called since the message.

    Ends with the next check that passes, or the next turn.

    Known false alarms: a check whose failure has nothing to do with the claim ("the unit tests pass; the build fails as
    before" is left out, for its doubt).
    """

    pattern = PatternType.UNPROVEN_CLAIM
    ends_with = "a check that passes, or a user message"
    notice = "The agent says that checks pass, but the last one that was run, {required_tool}, failed."
    texts = (
        "Your message says that checks pass, but the last one that was run, {required_tool}, failed. Run it again, or "
        "correct the message.",
        "Your message says that checks pass, but the last one that was run, {required_tool}, failed. Run it again, or "
        "correct the message.",
    )
    reported = 14
    finishes = "programs"

    failed_check: str = ""  # the latest check, if it failed, in one line; else empty
    claimed: str = ""  # id of the message that claims it; empty if something was called since
    reported_claim: bool = False  # whether the claim was reported and not yet refuted

    def is_over(self, active: ActivePattern, ctx: EventContext) -> bool:
        """Whether a check has passed since."""
        del active, ctx
        return not self.reported_claim

    def on_act(self, call: CallRecord) -> None:
        """Forget the claim: the work goes on."""
        del call
        self.claimed = ""

    def on_finish(self, done: FinishedCall, ctx: EventContext) -> None:
        """Remember how the latest check ended."""
        del ctx
        call = done.call
        if call.runs != "shell" or _RUNNERS.isdisjoint(call.programs) or not _CHECK.search(call.request.raw):
            return
        failed = done.verdict.failed
        self.failed_check = call.request.summary() if failed else ""
        self.reported_claim = self.reported_claim and failed

    def on_message(self, message: SpokenText, ctx: EventContext) -> None:
        """Look for a claim in a message that follows a failed check."""
        del ctx
        self.claimed = ""
        text = message.event.text
        if not self.failed_check or not text:
            return
        text = text[-MAX_TEXT_CHARS:]
        if _FAILS.search(text):
            return
        for found in _CLAIM.finditer(text):
            start = max(text.rfind(mark, 0, found.start()) for mark in ".\n!") + 1
            if not _DOUBT.search(text[start : found.end() + 25]):
                self.claimed = message.event.id
                return

    def on_turn(self, ctx: EventContext) -> None:
        """Report a claim with which the turn ends."""
        claimed, self.claimed = self.claimed, ""
        severity = ctx.rules.behaviour.unproven_claim.step(1) if claimed else 0
        if severity:
            self.reported_claim = True
            seen = PatternSighting(
                self.pattern, severity, digest(claimed.encode()), 1, (), [claimed], "run the check again",
                required_tool=self.failed_check,
            )  # fmt: skip
            ctx.sightings.append(seen)
