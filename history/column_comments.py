"""Comments on the columns of the catalogue's views: one for each name; a view's own comment takes precedence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .locations import quoted

if TYPE_CHECKING:
    import duckdb

_NOTES = """
about: What the event is about: the output judged false, the nudge delivered, or the circuit a probe is asked for
active_patterns: Patterns of a restored session that had not ended
agent_id: Agent within the session, as the publisher names it
agents: Agents of the session, without the main one
alarms: Alarms raised: patterns, lost trust, openings
alarms_judged_false.share: judged_false as a share of alarms
all_waits: Time waited for all answers together
answers: How often somebody answered
answered: When it was answered; NULL: it was not
appended: True: written by the engine itself; false: a finish that came late
arrived: When the log took it, UTC; NULL where that is not known
asked: How often permission was asked for
asks: Questions to people that nobody has answered
attempts: Attempts, the first included
began: First event, UTC
breaker_key: Circuit: tool: or service: and its name
call_digest: Equal for equal tool and arguments
call_id: Of the call, as the publisher names it; not unique
calls: Finished calls
calls_between: Calls of the session between the failure and the retry
cause: Id of the event behind it
caused_by: Ids of the events behind it, newest last
changes_at: From when on it can change by itself, UTC
command_key: Key that the order is about
confidence: From 0 to 1
consecutive: Failures in a row
consecutive_failures: Failures in a row
correlation_id: What belongs together, as the publisher says; on an appended finish the id of the start
cost_usd: Cost in US dollars, as the publisher says
count: Failures counted in the window
current_attempts: Calls of the model in use
current_model: Model in use
current_success_rate: Share of its calls that succeeded, from 0 to 1
date: Day of the file it is recorded in, UTC
day: Day, UTC
deadline_ms: Milliseconds the call may take, as its publisher stated
decided: When the decision was taken, UTC
delivered: Issued while it happened, so that the agent could see them
denied: Refused by a person or a rule
domain: Kind of target that the reporter names
duration_ms: Milliseconds
effective: Whether it helped, or how many did
effective_nudges: Nudges that helped
ended: Last event that a publisher sent, UTC
error: Type of the error, else its code or status
error_code: Code of the error, as text
error_message: Beginning of the error
error_type: Type of the error
events: Events that publishers sent
events.source: Who spoke to the model, other than its user: report, agent, timer, hook or client
expected: A failure that its publisher expected, such as a search without a match
expected_action: What would end the pattern
expires_at: When it ends by itself, UTC
failed: When the call had failed before, UTC
failing: Whether one of its calls failed
failure_key: Trust key of the call: tool and what of its target matters
failure_rate: Share of failures among calls that failed or succeeded, from 0 to 1
failures: Failed calls that were not expected to fail
false_alarm: Whether somebody judged it wrong
false_alarms: How many were judged wrong
false_asks: Granted, and the call did not fail
fault: Reason code of a record that could not be read
files: Parquet files
fine_key: Trust key of the call
fingerprint: Of what repeats itself; equal for one streak
finish: False where a server knows that it is no finished call
first_day: Earliest day of arrival, UTC
first_offset: Lowest offset
first_seen: When it was seen first, UTC
from_cache: Served from a cache: the tool was not called
from_state: State before
gone: The key is back to its default, or the overrides are cleared
granted: Whether permission was given
granted_times: How often it was given
guarantee: Limit that is nearly or fully spent
history: Directory of the history
holder: Guard that may probe
http_status: HTTP status of the failure
id: Id of the event or decision
issued: Nudges issued
issued_by: Operator who gave the order
judged: Nudges whose effect is known
judged_at: When its effect was known, UTC
judged_by: Who judges it otherwise: its publisher, or an entry of the rules
judged_false: How many were judged wrong
key: Key of the record in its topic
kind: What kind the row is of
lane: How the nudge is to reach the model
last_day: Latest day of arrival, UTC
last_news: When something was last heard of it, UTC
last_offset: Highest offset
last_seen: When it was seen last, UTC
last_time: When it repeated itself last, UTC
lasted: How long
lease_until: Until when the probe is granted, UTC
limit: Limit of the guarantee
longest: The longest: repetitions of a loop, time of an outage
loops: Loops
machine: trust, breaker, behaviour or failure
mean: Mean time until recovery
measured: Calls that the rate was measured over
median: Median time until recovery
median_wait: Median time waited
message: Text
message_id: Message of the model that made the call, as the publisher names it
method: How permission was decided, in the platform's words
mode: enforce, observe or disabled
model: Model; of the event, or the last that its session has named
model_tier: Tier of the model, as the publisher names it
narrowed: True: filters of tool, model or session are in force
needed: It needs a person, or may need one soon; false: unknown or abandoned
noted: False where a server knows that no question about failures, permissions or repetitions needs it
nudge_id: Nudge that is judged or withdrawn
nudge_type: gentle, direct or interrupt
nudges: Nudges issued
of_calls: All finished calls of the model
of_seconds: Seconds of all its calls
of_sessions: All sessions of the model
of_usd: Cost of all its calls, US dollars
offset: Place in its partition
open_until: Until when the circuit stays open, UTC
orders: Command lines that together resolve it
origin: Place in the log of the event that ended the call, as a number that increases
outages: How often it was out
outages.began: First opening, or first loss of trust, UTC
outcome: How the call ended, in the words of tool_calls.outcome
output_id: Decision judged wrong
own_making: Failures the model caused by what it sent
p50_ms: Median duration, milliseconds
paid_off: Whether it succeeded
partition: Partition of the topic
parts: Keys, circuits and scores of it, with their states
path: Place of the fault in the record
pattern: What the model does over and over
pattern_id: Pattern that the nudge is about
pattern_kinds: Patterns seen, each once
pattern_rates.sessions: Sessions of the model with the pattern
patterns: Severity steps of patterns seen
patterns.duration_ms: Milliseconds since the streak began
pending_nudges: Nudges of a restored session that no answer had carried
place: Rank, from 1
plugin_name: Plugin that the tool belongs to
rate: Share, from 0 to 1
rate_high: Upper bound of rate, 95 % (Wilson)
rate_low: Lower bound of rate, 95 % (Wilson)
reason: Why, in words
reclassified: Class that the failure has by itself, where the rules or the publisher judge it otherwise
record: The whole record as JSON, without results
recorded_first.first: When the first recorded event happened, UTC
recorded_until.until: Where the present of the questions is, UTC
recovered: When it was well again, UTC; NULL while it lasts
recursion_depth: How deep agents call agents
repeated: Its id, or another finish of its call, was recorded before; views leave it out
repetitions: How often it has repeated itself
result_digest: Equal for equal results
result_size: Bytes of the result
retried: Retries
same_result: How often this call has given this result in a row in its session
scenario: Scenario that tools are ranked for
scope: What it holds for
score: Quality, from 0 to 1
service: MCP server or domain
session_id: Session
sessions: Sessions, each once
sessions_hit: Number of sessions that it hit lately
setbacks: Steps to a bad state within one outage
settings_restored: The own settings of a restored session are still in force
severe: Of them severe
severity: How bad: of a failure its class, of a pattern minor, moderate or severe
share: Share, from 0 to 1
share_high: Upper bound of share, 95 % (Wilson)
share_low: Lower bound of share, 95 % (Wilson)
share_of_calls: Share of the model's calls that loops wasted, from 0 to 1
signature: The line that tells the error, without names, numbers, paths and quotations
silent: The user is not told
since: Since when, UTC
size: Bytes of the record
source: A store, a Kafka or files
source_offset: Offset of the record it is about
source_partition: Partition of the record it is about
source_topic: Topic of the record it is about
stalled: The publisher says that the turn stalled
start_id: Event that began the call, of files whose recorder judged calls itself
started: When the call began, UTC
state: State
state_key: Key that the state is of
status: How the call ended, as its publisher says
step: Step of the agent: the calls of one message of the model
strategy: How the suggestion came about
subject: Key, circuit or pattern
subjects: Different keys, circuits, sessions or tools
succeeded: Retries that succeeded
success_rate: Share of calls that succeeded, from 0 to 1
successes: Successes while recovering
successes_needed: Successes that end the recovery
suggested_attempts: Calls of the suggested model
suggested_model: Model that does better
suggested_success_rate: Share of its calls that succeeded, from 0 to 1
summary: Command line, path or other argument that tells most of the request
tenant_id: Tenant, as the publisher names it
text_size: Characters of the text
threshold: What is compared with
time: When it happened, UTC, as the publisher says; of a decision, that of the event behind it
time_to_recovery.recovered: Outages that have ended
timed_out_unanswered: Closed by the engine at its stated deadline
times: How often
to_state: State after
tool: Tool
tool_class: What the call does to the world: read, action, introspection, planning, poll or unknown
tool_name: Tool
tool_sequence: Tools that repeat themselves, in order
topic: Topic
trigger: What made the state change
trust_key: Key that is trusted or not: tool and what of its target matters
turn_index: Turn of the session, from 0
turns: Turns, as their highest number says
type: Kind of event or decision
unanswered: Not answered yet
until: When the next state came, UTC; NULL: it is still so
used: How much of the limit is spent
user_id: User; of the event, or the last that its session has named
verdict: success, failure or neutral
waited: How long it was waited
waited_ms: Milliseconds that the call waited for a person
waiting: What waits for a person, and approvals that nobody has used
wasted_calls: Calls of loops but the first of each
wasted_seconds: Seconds of those calls
wasted_usd: Cost of those calls, US dollars
week: Monday of the week, UTC
window_s: Seconds in which failures count
words: Words of the text
workspace: Workspace; default where none was named
workspace_digest: Equal for equal states of the workspace after the call
workspace_id: Workspace; of the event, or the last that its session has named
worst: Severest pattern: 1 minor, 2 moderate, 3 severe; NULL: never stuck
"""

NOTES: dict[str, str] = dict(line.split(": ", 1) for line in _NOTES.strip().splitlines())
"""Note of each column, by its name or by `view.name`."""


def comments(connection: duckdb.DuckDBPyConnection) -> Iterator[str]:
    """Statements that comment every column of a catalogue's views, but those that have another comment already.

    Only views that have a comment are treated as the catalogue's. The statements take a third of the time of the views,
    so only what may show the comments runs them.
    """
    columns = connection.execute(
        "SELECT table_name, column_name, comment FROM duckdb_columns() WHERE NOT internal AND (schema_oid, table_name) "
        "IN (SELECT (schema_oid, view_name) FROM duckdb_views() "
        "WHERE comment IS NOT NULL AND schema_name = current_schema())"
    ).fetchall()
    for view, column, comment in columns:
        note = NOTES.get(f"{view}.{column}") or NOTES.get(column)
        if note and comment in {None, note}:
            yield f"""COMMENT ON COLUMN "{view}"."{column}" IS '{quoted(note)}'"""
