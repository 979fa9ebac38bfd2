"""Judges restarts of the whole job in a status: each follows from a rule or a request, and counts once."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from judge.jobs import attempt_of, decision_of, desired_job, finished_of, has_begun, restarts_of
from judge.slots import moment
from kit.model.storage import Body
from simulation.policies import (
    WHOLE,
    Rule,
    ended_at,
    is_about_late,
    is_overdue,
    next_delay,
    policy_of,
    restarted_by,
    rules_of,
)
from simulation.records import Records

MOST_ATTEMPTS: Final = 5
"""The number of entries in a history."""
SEEN_S: Final = 1.0
"""The maximum age of a failure that an operator has observed if nothing is delayed."""


@dataclass(frozen=True, slots=True)
class StatusWrite:
    """A write of a status: the job before and after it."""

    old: Body
    new: Body
    records: Records
    now: datetime

    def mistakes(self) -> Iterator[str]:
        before, after = self._statuses
        rise = attempt_of(self.new) - attempt_of(self.old)
        more = after.get("countedRestarts", 0) - before.get("countedRestarts", 0)
        observed = after.get("observedRestartRequest", "")
        requested = observed != before.get("observedRestartRequest", "")
        if requested and observed not in self.records.requests[self._uid]:
            yield f"nobody requested a restart by {observed}"
        yield from self._wrong_restarts()
        if before.get("attemptHistory") == after.get("attemptHistory"):
            if rise or more:
                yield f"the attempt rose by {rise} and the restarts by {more}, and the history does not say why"
            elif requested and has_begun(self.old) and not self._ends:
                yield f"took note of the request {observed}, and did not restart the job"
            return
        # A restart whose write failed may be written together with the next one, or with the end of the job. The history has
        # the attempt that ends only if a rule decided.
        added = [each for each in after["attemptHistory"] if each.get("number", 0) >= attempt_of(self.old)]
        over, whole = (
            after["attemptHistory"][-1],
            [each for each in added if each.get("number", 0) < attempt_of(self.new)],
        )
        if not added or len(after["attemptHistory"]) > MOST_ATTEMPTS:
            yield f"the history of attempt {attempt_of(self.new)} ends with {over}"
        if (rise, more) != (len(whole), sum(each.get("action") == "RestartAll" for each in whole)):
            yield f"the attempt rose by {rise} and the restarts by {more} at {added}"
        if not self._ends:
            yield from self._wrong_beginning(over)
        if "rule" in over:
            yield from self._wrong_rule(over)
        elif not requested:
            yield f"nobody requested this restart, and no rule: {over}"

    @property
    def _uid(self) -> str:
        return str(self.new["metadata"]["uid"])

    @property
    def _statuses(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return self.old.get("status") or {}, self.new["status"]

    @property
    def _ends(self) -> bool:
        return decision_of(self.new) is not None or desired_job(self.new).is_done(finished_of(self.new))

    def _wrong_beginning(self, over: dict[str, Any]) -> Iterator[str]:
        """Return what is wrong with the first status of an attempt."""
        recent, done = self.records.recent(self._uid), finished_of(self.new)
        keeps = {policy_of(job).get("finishedReplicaPolicy") == "Keep" for job in recent}
        if done and True not in keeps:
            yield f"{sorted(done)} had succeeded in an earlier attempt, and do not run again"
        if False not in keeps and not finished_of(self.old) <= done:
            yield f"{sorted(finished_of(self.old) - done)} had succeeded, and that is forgotten"
        before, after = self._statuses
        last_s, delay_s = (each.get("begun", {}).get("delaySeconds", 0) for each in (before, after))
        if delay_s not in {0, next_delay(last_s)} or (delay_s and not before.get("attemptHistory")):
            yield f"the attempt is delayed by {delay_s} s after {last_s} s"
        limit = max(policy_of(job).get("maxRestarts", 0) for job in recent)
        if over.get("action") == "RestartAll" and after["countedRestarts"] > limit:
            yield f"was restarted {after['countedRestarts']} times of {limit} allowed"

    def _wrong_rule(self, over: dict[str, Any]) -> Iterator[str]:
        """Check that this attempt had an event that the rule matches, or a late replica."""
        name, action = over["rule"], over["action"]
        found = self.records.rule(self._uid, name)
        if found is None:
            yield f"there is no rule {name}"
            return
        version, rule = found
        ending, counted = decision_of(self.new), self.new["status"].get("countedRestarts", 0)
        if ending is not None and action == "RestartAll" and counted < policy_of(version)["maxRestarts"]:
            yield f"was restarted {counted} times of {policy_of(version)['maxRestarts']} allowed"
        fates = self.records.of_attempt(self.old)
        slot = over.get("replicaType"), over.get("replicaIndex")
        own = [fate for fate in fates if fate.slot == slot]
        chosen = [each.uid for each in own if rule in [by for _, by in self.records.deciders([version], each)]]
        if rule["action"] != action:
            if (rule.get("escalation") or {}).get("action") != action or not self._escalates(rule, chosen):
                yield f"rule {name} does not say {action}: {rule}"
            return
        if chosen and self.records.prompt:
            yield from self._wrong_order(version, rule, chosen)
        elif not chosen and not (is_about_late(rule) and self.records.start_is_late(self.old, self.now)):
            yield f"rule {name} is about nothing that has happened: {over} {rule} {fates}"

    def _escalates(self, rule: Rule, chosen: list[str]) -> bool:
        """Whether the rule escalates: by its record or, if no write succeeded before, by that of a `chosen` failure."""
        unwritten = [each for each in self.new["status"].get("restarts") or () if each["pod"] in chosen]
        written = [each for job in (self.old, self.new) for each in restarted_by(job, rule)]
        gone_at = self.records.gone_at
        return any(is_overdue(each, rule, self.now, gone_at(each["pod"])) for each in (*unwritten, *written))

    def _wrong_order(self, version: Body, rule: Rule, chosen: list[str]) -> Iterator[str]:
        """Return what is wrong with the choice of these pods: without delays, the first rule decides by its first failure."""
        rules, states = rules_of(version), self.records.states
        for fate in self.records.of_attempt(self.old):
            for at, decider in self.records.deciders([version], fate):
                if decider is None or decider["action"] not in WHOLE or at > self.records.now - SEEN_S:
                    continue
                if not self.records.is_shown_after_edit(fate, at):
                    continue
                if rules.index(decider) < rules.index(rule):
                    yield f"rule {decider['name']} comes before {rule['name']}: {fate}"
                elif decider == rule and all(ended_at(states[fate.uid]) < ended_at(states[uid]) for uid in chosen):
                    yield f"an earlier failure that {rule['name']} is about was passed over: {fate}"

    def _wrong_restarts(self) -> Iterator[str]:
        """Return what is wrong with the delays between restarts: none before the first one, then a kubelet's."""
        before, after = (
            {(each["type"], each["index"]): each for each in status.get("restarts") or ()} for status in self._statuses
        )
        for slot, record in after.items():
            earlier = before.get(slot, {})
            if record.get("failedAt") == earlier.get("failedAt"):
                continue
            delay_s, last_s = _delay_s(record), _delay_s(earlier)
            counts = "replaced" in record and not (earlier.get("pod") == record["pod"] and "replaced" in earlier)
            wanted = next_delay(last_s) if counts and restarts_of(self.old).get(slot) else 0
            rules = self.records.deciders(self.records.recent(self._uid), self.records.kubelet.fates[record["pod"]])
            if counts and rules and all(rule and rule["action"] != "RestartReplica" for _, rule in rules):
                yield f"{slot} has a restart that does not count: {record} {rules}"
            ignored = "failedAt" in earlier and any(rule and rule["action"] == "Ignore" for _, rule in rules)
            if not delay_s and self.records.may_seem_long(record["pod"]):
                continue
            if delay_s != wanted and not (ignored and delay_s == next_delay(last_s)):
                yield f"{slot} is delayed by {delay_s} s, not {wanted} s: {earlier} {record}"


def _delay_s(record: dict[str, Any]) -> float:
    if "nextTime" not in record:
        return 0.0
    return (moment(record["nextTime"]) - moment(record["failedAt"])).total_seconds()
