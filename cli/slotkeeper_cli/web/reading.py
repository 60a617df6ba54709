"""The readings of each page: the dicts of the commands, as `--json` prints them, and few facts beyond."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from slotkeeper.retry.downstream.downstreams import MalformedHealth
from slotkeeper_cli.account import Account
from slotkeeper_cli.attention import CHECKS, attention
from slotkeeper_cli.audit import judge
from slotkeeper_cli.audit.audit_page import history_timeline
from slotkeeper_cli.audit.figures import figures
from slotkeeper_cli.audit.history_reader import read_history
from slotkeeper_cli.audit.intervals import weighted_steps
from slotkeeper_cli.dead_letters import DeadLetterQueueName, DeadLetterQueueReader
from slotkeeper_cli.doctor.alarm_checks import first_step
from slotkeeper_cli.doctor.health_checks import examine
from slotkeeper_cli.doctor.readings import failures
from slotkeeper_cli.explanation import explain
from slotkeeper_cli.failures import Failures, Filters
from slotkeeper_cli.look.timeline import spark_svg, timeline_of_rows, timeline_svg
from slotkeeper_cli.request_history import ListedState, listing
from slotkeeper_cli.requests import grouped
from slotkeeper_cli.retries import DownstreamControl, details
from slotkeeper_cli.stack_connection import StackConnection
from slotkeeper_cli.status import status
from slotkeeper_cli.token_state import read_token
from slotkeeper_cli.unread import Search
from slotkeeper_cli.web.shared import REFRESH, Data, PageReading

HOUR = 3600.0
MAX_DEAD_LETTERS = 1000
_ALL = 1_000_000  # queued requests
# Seconds between two readings of what changes seldom, or needs many calls.
_SELDOM, _TIMELINE = 15.0, 30.0


class PageReadings:
    """The readings of a stack's pages. Errors of AWS pass through: a page states them, and keeps what it has."""

    def __init__(self, stack: StackConnection) -> None:
        self._stack = stack
        # The shared readings decide how often something is read; the account shares what several of them need.
        self.account = Account(stack, keeps=REFRESH * 0.9)

    def overview(self) -> PageReading:
        """Every process with its queue, what needs attention, and the numbers of the navigation."""
        return PageReading(("overview",), self._overview)

    def _overview(self) -> Data:
        search = Search()
        needs = attention(self.account)
        data = status(self.account)  # after it: the queues of all processes are then read in one scan
        failed = search.try_read("failures", lambda: failures(self.account), None)
        alarms = search.try_read("alarms", self.account.alarms, None)
        return {
            **data,
            "attention": needs["items"],
            "malformed": [each.process for each in self.account.processes()[1]],
            "failed": failed and "more than " * failed.is_cut + f"{len(failed.rows):,}",
            "ringing": None if alarms is None else sum(each["StateValue"] == "ALARM" for each in alarms),
            "not_read": [*data["not_read"], *needs["not_read"], *(each.as_dict() for each in search.not_read)],
        }

    def process(self, name: str) -> PageReading:
        """A process as `slotkeeper status PROCESS --json` shows it, with its whole queue."""
        return PageReading(("process", name), lambda: self._process(name))

    def _process(self, name: str) -> Data:
        data = status(self.account, name)
        (shown,) = data["processes"]
        queue = listing(self.account, name, [ListedState.QUEUED], _ALL, time.time())
        if any(each.get("queue") == "DispatchQueue" for each in data["event_source"]):
            # Only the janitor starts requests.
            queue["requests"] = [each | {"expected_start": None} for each in queue["requests"]]
        not_read = [*data["not_read"], *(each for each in queue["not_read"] if each not in data["not_read"])]
        return {**data, **queue, "process": shown, "not_read": not_read}

    def timeline(self, name: str) -> PageReading:
        """The picture of a process's last hour, from the rows of its requests."""

        def read() -> Data:
            search, now, process = Search(), time.time(), self.account.process(name)
            rows = self.account.history(search, name, now - HOUR, now)
            drawn = timeline_of_rows(name, rows, now - HOUR, now, process.slot_limit, process.default_weight)
            return {"svg": timeline_svg(drawn), "not_read": [each.as_dict() for each in search.not_read]}

        return PageReading(("timeline", name), read, _TIMELINE, is_slow=True)

    def spark(self, name: str) -> PageReading:
        """The small picture of a process's last hour, from one call: the newest ends, and the holders of its item."""

        def read() -> Data:
            now, process, ends = time.time(), self.account.process(name), self.account.newest_ends(name)
            # Of more requests than were read, those that ended before are not drawn.
            since = max(now - HOUR, min((row.ended or now for row in ends.rows), default=now) if ends.is_cut else 0.0)
            # A request that has ended, and still holds its slot, is one of the holders.
            ended = [row for row in ends.rows if row.execution not in process.holders]
            spans = [((row.started, row.ended), row.weight or 1) for row in ended if row.started and row.ended]
            spans += [((float(each.since), now), each.weight) for each in process.holders.values()]
            # A slot that was held before the hour is in use from its begin on.
            steps = weighted_steps(((max(start, since), end), weight) for (start, end), weight in spans if end > since)
            label = f"at most {max((value for _, value in steps), default=0):,} slots of {name} in use in the last hour"
            return {"svg": spark_svg(steps, since, now, label, process.slot_limit)}

        return PageReading(("spark", name), read, _TIMELINE, is_slow=True)

    def history(self, name: str, hours: int) -> PageReading:
        """The checks, figures and picture of a process for the last hours."""

        def read() -> Data:
            now = time.time()
            history = read_history(self.account, now - hours * HOUR, now, name)
            return {
                "checks": [each.as_dict() for each in judge(history)],
                "figures": figures(history).get(name),
                "svg": timeline_svg(history_timeline(history, name)),
                "not_read": [each.as_dict() for each in history.not_read],
            }

        return PageReading(("history", name, hours), read, every=None, is_slow=True)

    def request(self, request_id: str, process: str | None) -> PageReading:
        """A request as `slotkeeper explain ID --json` shows it."""
        key = ("request", request_id, process)
        return PageReading(key, lambda: explain(self.account, request_id, process), _SELDOM)

    def failures(self, seconds: float) -> PageReading:
        """The failures of a period, as `slotkeeper failed list --json` groups them."""

        def read() -> Data:
            found = Failures(self.account, Filters(since=time.time() - seconds))
            groups = [each.as_dict() for each in grouped(found.read())]
            return {"groups": groups, "not_read": [each.as_dict() for each in found.search.not_read]}

        return PageReading(("failures", seconds), read, _SELDOM)

    def dead_letters(self) -> PageReading:
        """The messages of each dead-letter queue, at most MAX_DEAD_LETTERS of each."""

        def read(queue: DeadLetterQueueName) -> dict[str, Any]:
            reader = DeadLetterQueueReader(self._stack, queue)
            messages = [each.summary() | {"queue": queue} for each in reader.peek(MAX_DEAD_LETTERS)]
            codes = Counter(each["code"] for each in messages).most_common()
            unread = [each.as_dict() for each in [reader.unread(MAX_DEAD_LETTERS)] if each]
            return {"queue": queue, "name": queue.full_name, "messages": messages, "codes": codes, "not_read": unread}

        def every() -> Data:
            return {"queues": [read(each) for each in DeadLetterQueueName if each.is_deployed(self._stack)]}

        return PageReading(("dead letters",), every, every=None, is_slow=True)

    def downstreams(self) -> PageReading:
        """The details of each downstream; of a malformed one its name and its fault."""

        def read() -> Data:
            control, now = DownstreamControl(self._stack), time.time()
            found = [
                {"downstream": name, "state": "malformed", "why": str(health)}
                if isinstance(health, MalformedHealth)
                else details(name, health, control.settings(name), now)
                for name, health in sorted(control.healths.items())
                if name
            ]
            return {"downstreams": found, "policy_problem": control.policy_problem}

        return PageReading(("downstreams",), read)

    def token(self) -> PageReading:
        """The state of the shared token, never the token itself."""
        return PageReading(("token",), lambda: read_token(self._stack))

    def alarms(self) -> PageReading:
        """The alarms of the stack as CloudWatch describes them, and what to do first."""

        def read() -> Data:
            found = sorted(self.account.alarms(), key=lambda each: (each["StateValue"] == "OK", each["LogicalId"]))
            return {"alarms": [{**each, "first_step": first_step(each)} for each in found]}

        return PageReading(("alarms",), read, _SELDOM)

    def doctor(self) -> PageReading:
        """The findings of `slotkeeper doctor`, the worst first, and the checks that found nothing."""

        def read() -> Data:
            checks = [each.as_dict() for each in examine(self.account, CHECKS, time.time())]
            findings = [{**one, "check": each["check"]} for each in checks for one in each["findings"]]
            findings.sort(key=lambda each: each["severity"] != "bad")
            return {"findings": findings, "fine": [each for each in checks if not each["findings"]]}

        return PageReading(("doctor",), read, every=None, is_slow=True)


def badges(overview: Data) -> Mapping[str, Any]:
    """The numbers in the navigation, by page; without those that could not be read."""
    numbers = {"Failures": overview["failed"], "Alarms": overview["ringing"], "Processes": len(overview["attention"])}
    return {page: number for page, number in numbers.items() if number not in (None, 0, "0")}
