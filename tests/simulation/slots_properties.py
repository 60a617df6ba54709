"""The checks of the guarantees of slots (docs/correctness.md) for a state of the slots' world."""

from __future__ import annotations

from collections import Counter
from itertools import chain

from dev.judge.slot_item import Asked, Holder, Item, Writer, wrong_item, wrong_step
from slotkeeper.settings import CLOCK_SKEW_SECONDS, NO_TARGET
from slotkeeper.slots.closed_executions import WHILE_STOPPING_SECONDS
from slotkeeper.slots.queued import rank_of
from slotkeeper.slots.rate import Rate
from slotkeeper.slots.request import caller_of
from slotkeeper.slots.request_table import granted_as
from tests.simulation import slots_actors as code
from tests.simulation.aws import glue, stepfunctions
from tests.simulation.aws.stepfunctions import OPEN
from tests.simulation.frozen import Record
from tests.simulation.slots_state import (
    CHECK_GAP,
    GRACE,
    JOB,
    NO_PROCESS,
    NOTICE,
    PERIOD,
    PROCESS,
    SlotsState,
    code_of,
    fields_of,
    owner_of,
    process_of,
    version_of,
)
from tests.simulation.transcript import Question
from tests.simulation.workflow import ROWS
from tests.simulation.worlds import DIE, NOT_SENT, THROTTLE, Violation

ANSWERS = ("send_task_success", "send_task_failure")
_READ_TO_RECORDED = 200  # seconds: the most from a read of a child until its outcome is recorded
_UNDONE = (NOT_SENT, THROTTLE, DIE)  # the call has no effect
_WITHOUT_START = ("SKIPPED", "TOO_LATE", "CANCELLED", "REJECTED")
# A request's row: the states that may follow a state. No row is removed, or written again from its beginning.
_FOLLOWING = {
    "QUEUED": {"STARTED", "SUCCEEDED", "FAILED", "RETURNED", *_WITHOUT_START},
    "STARTED": {"SUCCEEDED", "FAILED", "RETURNED"},
    "FAILED": {"SUCCEEDED", "REDRIVEN", "RETURNED"},
}
# The status of the completion event, by the state of the row.
_STATUS = {"SUCCEEDED": "SUCCEEDED", "FAILED": "FAILED", "SKIPPED": "SKIPPED"} | dict.fromkeys(
    ("TOO_LATE", "CANCELLED", "REJECTED"), "DEAD_LETTERED"
)
_KEPT = ("request_id", "message_id", "digest", "placed", "priority", "sent", "attempt")  # of a row, for its life


class SlotsProperties(SlotsState):
    """The state with its checks: after each step, as the clock moves, and at the end."""

    def check(self) -> None:
        now = (self.services["dynamodb"], self.services["glue"], self.services["children"])
        if now == self._checked:
            return
        rows_before = self._checked[0][ROWS] if self._checked else None
        self._checked = now
        rows = self._rows()
        if rows_before is not None and rows_before is not self.services["dynamodb"][ROWS]:
            self._check_rows({row["execution"]["S"]: row for row in rows_before.fields.values()}, rows)
        for name in self.processes:
            item, before = self._item(name), self._before[name]
            if item is not before:
                self._before = self._before | {name: item}
                self._check_process(name, item, before, rows)
        # Each grant is planned on a queue that was read after the grant before it, not on what came later.
        for name in rows.keys() - self.queued_at.keys():
            self._check_added(name, rows)
            self.queued_at = self.queued_at | {name: self.grants[rows[name]["process_name"]["S"]]}
        self._check_work()

    # The process's item --------------------------------------------------------------------------------------------

    def _check_process(self, name: str, item: Record, before: Record, rows: dict[str, Record]) -> None:
        """The judge's verdict on a write of a process's item, S1c for the blocks that run, S5 for its grants."""
        if item is NO_PROCESS or before is NO_PROCESS:
            self.starts = ()
            self.passed = {of: pairs for of, pairs in self.passed.items() if of[0] != name}
            self.held_at_change = self.held_at_change | {name: frozenset()}
            return  # removed or added, and empty
        new, old = version_of(item), version_of(before)
        for breach in chain(wrong_item(new), wrong_step(old, new, self._asked, self._writer())):
            raise Violation(breach.guarantee, breach.text)
        added = [each for each in new.holders.keys() - old.holders.keys() if not new.holders[each].redriven]
        if added and self.blocks and name == PROCESS:
            self._check_at_work(new, set(added))
        if added and self.plan.rate:
            self._check_rate(name, self.plan.rate, len(added))
        if any(new.holders[each].is_lease for each in added):
            self._check_lease(name, rows)
        granted = self._in_order({each for each in added if each in rows})
        if granted:
            self._check_grant(name, new, granted, rows)
        if new.grants != old.grants and ("key_limit" in item or "key_limits" in item):
            self.held_at_change = self.held_at_change | {name: frozenset(new.held_by_key.items())}
        for each, holder in new.holders.items():
            was = old.holders.get(each)
            is_confirmed = was and was.state == "RESERVED" and holder.state == "RUNNING"
            if is_confirmed and not self.services["stepfunctions"][each]["redrives"]:  # a redriven one starts no work
                self._begin_work(each, rows)
        for each in old.holders.keys() - new.holders.keys():
            self._check_removed(each, old.holders[each], rows)
        # A dispatch adds reservations, and an adoption a confirmed holder.
        self.adopted |= {each for each in new.holders.keys() - old.holders.keys() if new.holders[each].redriven}
        self.adopted -= old.holders.keys() - new.holders.keys()

    def _asked(self, name: str, holder: Holder) -> Asked | None:
        row = self._rows().get(name)
        if holder.is_lease or row is None:
            return None
        return Asked(int(row["weight"]["N"]) if "weight" in row else 0, key=self._sent(row).key)

    def _writer(self) -> Writer | None:
        """The actor whose call is performed."""
        actor, ahead = self._acting
        return Writer(code_of(actor), self.now + ahead)

    def _in_order(self, granted: set[str]) -> list[str]:
        """The requests of a grant in the order of their starts, as its expression has them."""
        if not granted:
            return []
        names = self._asked_for["ExpressionAttributeNames"].fields.items()
        return [name for _, name in sorted((int(at.strip("#n")), name) for at, name in names if name in granted)]

    def _check_order(self, process: str, item: Item, granted: list[str]) -> None:
        """S5: among what was queued at the grant before: by priority, then by turns of the keys, then by place."""
        held = Counter(dict(self.held_at_change.get(process, ())))
        for at, name in enumerate(granted):
            later, key = granted[at + 1 :], self._sent(self._rows()[name]).key
            waiting, known = [*self._waiting(process), *later], {*later, *self._known_waiting(process)}
            heads = {self._sent(self._rows()[each]).key: each for each in self._heads(process, waiting, held, known)}
            rank, ranks = rank_of(self._place(name)), {of: rank_of(self._place(each)) for of, each in heads.items()}
            own = (each for each in self._lines(process, waiting).get(key, ()) if each in known)
            overtaken = [each for each in own if self._place(each) < self._place(name)]
            overtaken += [heads[of] for of in heads if ranks[of] < rank]
            if overtaken:
                raise Violation("S5", f"{name} is granted before {overtaken[0]}")
            self._take_turn(process, rank, key, {of for of in heads if ranks[of] == rank})
            held[key] += item.holders[name].weight

    def _take_turn(self, process: str, rank: str, key: str, could: set[str]) -> None:
        """S5: no key starts twice in the time for which another one always has a request that could start.

        Args:
            could: the keys that have such a request of this priority.
        """
        pairs = {each for each in self.passed.get((process, rank), ()) if each[0] in could - {key}}
        if left_out := [of for of, other in pairs if other == key]:
            raise Violation("S5", f"key {key!r} starts twice before key {left_out[0]!r}")
        others = {each.key for each in self.plan.requests if each.process == process} - {key}
        pairs |= {(each, key) for each in others}
        self.passed = self.passed | {(process, rank): frozenset(pairs)}

    def _check_grant(self, process: str, item: Item, granted: list[str], rows: dict[str, Record]) -> None:
        """S5 of a grant. S9b: none is too late."""
        self._check_order(process, item, granted)
        self.grants = self.grants | {process: self.grants[process] + 1}
        for at, name in enumerate(granted):
            self.granted = self.granted | {name: (*self.granted.get(name, ()), (item.grants, at, self.now))}
        for name in granted:
            row = rows[name]
            # One that an operator has freed may be granted again before its start is marked.
            if row["state"]["S"] not in ("QUEUED", "STARTED"):
                raise Violation("S3", f"{name} is granted although it is {row['state']['S']}")
            if "start_before" in row and self._shown >= float(row["start_before"]["N"]):
                raise Violation("S9b", f"{name} is granted after its start_before")

    def _check_lease(self, process: str, rows: dict[str, Record]) -> None:
        """S8: no lease takes a slot while a request waits that is not blocked."""
        clock, known = self.now + self._acting[1], self._known_waiting(process)
        stays = [
            name
            for name in self._waiting(process)
            if "skips" not in rows[name] and float(rows[name].get("start_before", {"N": "inf"})["N"]) > clock
        ]
        waits = self._heads(process, stays, Counter(dict(self.held_at_change.get(process, ()))), known)
        if waits and self.target_of(process) != NO_TARGET:
            raise Violation("S8", f"a lease takes a slot before {waits[0]}")
        self.grants = self.grants | {process: self.grants[process] + 1}

    def _known_waiting(self, process: str) -> list[str]:
        """The requests that wait, and were queued at the grant before."""
        grants = self.grants[process]
        return [name for name in self._waiting(process) if self.queued_at.get(name, grants) < grants]

    def _check_removed(self, name: str, holder: Holder, rows: dict[str, Record]) -> None:
        """S7: an outcome is recorded before its slot is released. S1b: not before an aborted child has settled."""
        row = rows.get(name)
        executions, by_operator = self.services["stepfunctions"], self._acting[0] == "release"
        was_redriven = name in executions and executions[name]["redrives"]
        if holder.state == "RUNNING" and by_operator:
            self.forced |= {name}
        is_exempt = by_operator or was_redriven or holder.redriven
        has_no_end = row is not None and row["state"]["S"] in ("QUEUED", "STARTED")
        if holder.state == "RUNNING" and has_no_end and not is_exempt:
            raise Violation("S7", f"{name} is released, and its row has no end")
        child = self._child(name)
        is_aborted = child is not None and not child["redrives"] and child["status"] in ("ABORTED", "TIMED_OUT")
        if child is not None and is_aborted and self.now < child["stopped"] + self.plan.settle_seconds:
            raise Violation("S1b", f"{name} is freed before the work of its child has settled")

    def _check_at_work(self, item: Item, granted: set[str]) -> None:
        """S1c: with each grant, the weights of all work and of all grants stay within the limit.

        A block counts until its lease ends by its caller's clock, and by each clock that differs by less than the skew.
        """
        weights = [item.holders[name].weight for name in (self._working() & item.holders.keys()) | granted]
        codes = {item.holders[name].code for name in granted}
        for caller, (until, weight) in self.blocks.items():
            if self.now + self.ahead_of(caller) < until and code_of(caller) not in codes:
                weights.append(weight)
        if sum(weights) > item.limit:
            text = f"the weight at work is {sum(weights)}, the limit {item.limit}"
            raise Violation("S1c", f"{sorted(granted)} granted: {text}")

    def _check_rate(self, process: str, rate: Rate, number: int) -> None:
        """S11, with a grant: in no time more than the rate allows, by the clock of the first and the latest clock."""
        latest = self.now + max(*self.plan.ahead, *self.plan.leases, 0.0, 0.0)
        # A call that arrives late begins no time: its sender's clock had shown an earlier one.
        self.starts = (*self.starts, *[(process, self.now, self._shown)] * number)
        of_process = [clock for name, _, clock in self.starts if name == process]
        for before, began in enumerate(of_process):
            allowed = rate.burst + (latest - began) * 1000 / rate.interval
            if len(of_process) - before > allowed + 1e-6:  # times are no multiples of a power of two
                times = [at for name, at, _ in self.starts if name == process][before:]
                raise Violation("S11", f"{process} starts at {times}, more than its rate {rate} allows")

    def ahead_of(self, name: str) -> float:
        """The lead of the clock of an actor."""
        kind, _, number = name.partition(" ")
        if kind in ("starter", "dispatcher"):
            return self.plan.ahead[int(number) % len(self.plan.ahead)]
        return self.plan.leases[int(number)] if kind == "caller" else 0.0

    # Rows ----------------------------------------------------------------------------------------------------------

    def _check_rows(self, before: dict[str, Record], rows: dict[str, Record]) -> None:
        """S3: no row is lost, and each changes as _FOLLOWING permits. S5: a start has the order of its grant."""
        for name, old in before.items():
            row = rows.get(name)
            if row is None or any(row.get(each) != old.get(each) for each in _KEPT):
                raise Violation("S3", f"the row of {name} was {old}, and is {row}")
            if row is not old:
                self._check_row(name, old, row)

    def _check_added(self, name: str, rows: dict[str, Record]) -> None:
        """S9: only a request that was returned keeps its caller: that of another attempt has its answer."""
        row = rows[name]
        self.recorded |= {(name, row["state"]["S"])}
        same = (each for each in rows.values() if each["message_id"] == row["message_id"])
        if "task_token" in row and any(each["state"]["S"] == "REDRIVEN" for each in same):
            raise Violation("S9", f"{name} has the caller of an attempt that was redriven")

    def _check_row(self, name: str, old: Record, row: Record) -> None:
        was, state = old["state"]["S"], row["state"]["S"]
        if state != was and state not in _FOLLOWING.get(was, ()):
            raise Violation("S3", f"{name} was {was}, and is {state}")
        if ("place" in row) != (state == "QUEUED"):
            raise Violation("S3", f"{name} is {state}, and its place is {row.get('place')}")
        if state != was and state in _WITHOUT_START and name in self._holders():
            raise Violation("S3", f"{name} is {state}, and holds a slot")
        if state != was and state == "SUCCEEDED" and not self._has_succeeded(name) and name not in self.redriven_at:
            raise Violation("S3", f"{name} is SUCCEEDED, and its work is not")
        self._check_end(name, old, row)
        if "granted" in row and "granted" not in old and name in self.granted:
            given, expected = row["granted"]["S"], [granted_as(*each[:2]) for each in self.granted[name]]
            # The grant of an old reservation, by some clock, is not known when it is started again.
            is_young = not self.plan.first_run and self.now < self.granted[name][0][2] + code.AGE - CLOCK_SKEW_SECONDS
            if given not in expected and (given or is_young):
                raise Violation("S5", f"the start of {name} has the order {given}, its grant {expected}")

    def _check_end(self, name: str, old: Record, row: Record) -> None:
        """S7: an end is recorded once, and after its work. S9: it is published before it is marked, and may expire."""
        was, state = old["state"]["S"], row["state"]["S"]
        if state != was:
            self.recorded |= {(name, state)}
        if state != was and state in ("SUCCEEDED", "FAILED") and self._works(name):
            raise Violation("S7", f"{name} is recorded as {state}, and its work runs")
        if state != was and state == "FAILED" and self._is_known_to_have_succeeded(name):
            raise Violation("S7", f"{name} is recorded as FAILED, and its work has SUCCEEDED")
        if state == was == "FAILED" and row["code"] != old["code"] and not self._was_redriven(row):
            raise Violation("S7", f"{name} has failed by {old['code']['S']}, and by {row['code']['S']}")
        if state == "REDRIVEN" and name in self.discarded:
            raise Violation("S3", f"{name} is redriven, and was discarded")
        if state in _STATUS and "open" not in row and "open" in old:
            due = {_STATUS[state], *((NOTICE,) if state == "FAILED" else ())}
            if missing := {each for each in due if (name, each) not in self.published}:
                raise Violation("S9", f"{name} is marked as published, without {sorted(missing)}")
            if self._waits(old):
                raise Violation("S9", f"{name} is marked as published, and its caller waits")
        if state in _STATUS and "open" in row and "expires" in row:
            raise Violation("S9", f"{name} is not published, and may expire")

    def _works(self, name: str) -> bool:
        """Whether the Glue run or the child of an execution runs, and was not redriven after it was read."""
        child, redriven_at = self._child(name), self.redriven_at.get(name, self.now)
        is_open = child is not None and child["status"] in OPEN
        return name in map(owner_of, self._alive()) or (
            is_open and (not child["redrives"] or self.now - redriven_at > _READ_TO_RECORDED)  # type: ignore[index]
        )

    def _is_known_to_have_succeeded(self, name: str) -> bool:
        """Whether the work of a holder has succeeded. A workflow may not have found its Glue run."""
        by_workflow = self._acting[0].startswith("workflow ")
        is_found = self._is_machine(name) or not by_workflow
        return is_found and self._is_confirmed(name) and self._has_succeeded(name) and "reads" not in self.denied

    def _begin_work(self, execution: str, rows: dict[str, Record]) -> None:
        """S3, at a confirm: its request has not ended, and no other attempt of it works or has succeeded."""
        row = rows.get(execution)
        if row is None:
            raise Violation("S3", f"{execution} runs, and has no row")
        if row["state"]["S"] not in ("QUEUED", "STARTED", "FAILED"):
            raise Violation("S3", f"{execution} runs although it is {row['state']['S']}")
        for name in self.worked - {execution}:
            other = rows[name]
            is_same = other["message_id"] == row["message_id"] and other["process_name"] == row["process_name"]
            was_redriven = self.services["stepfunctions"][name]["redrives"]
            if is_same and other["state"]["S"] != "REDRIVEN" and not was_redriven:
                raise Violation("S3", f"{row['request_id']['S']} runs twice: as {name}, then as {execution}")
        self.worked |= {execution}
        if execution in self.cancelled:
            raise Violation("S3", f"{execution} was cancelled, and runs")

    # Work ----------------------------------------------------------------------------------------------------------

    def _check_work(self) -> None:
        """S1b: each run and each child has a slot of its own."""
        holders = self._holders()
        owners = [owner_of(run) for run in self._alive()]
        for owner in filter(None, owners):
            if owner not in holders:
                raise Violation("S1b", f"a Glue run of {owner} is alive, and {owner} holds no slot")
            if owners.count(owner) > 1:
                raise Violation("S1b", f"two Glue runs of {owner} are alive in one slot")
        for name, child in self._children():
            if child["status"] in OPEN and not child["redrives"] and name not in holders:
                raise Violation("S1b", f"the child {name} runs, and {name} holds no slot")

    def _check_not_again(self, execution: str) -> None:
        """S7, before work is started: no work of the same message has succeeded."""
        rows = self._rows()
        row = rows.get(execution)
        for name, other in rows.items() if row else ():
            is_same = row and other["message_id"] == row["message_id"] and other["state"]["S"] != "REDRIVEN"
            if is_same and self._has_succeeded(name):
                is_own = name == execution and self.target_of(process_of(name)) != JOB
                if not is_own:  # the start of a child that exists is refused
                    raise Violation("S7", f"{execution} starts its work although that of {name} has SUCCEEDED")

    def _check_caller_waits(self, name: str) -> None:
        """S9, without a fault: no work is done for a caller that timed out before the confirm."""
        caller = fields_of(self.services["stepfunctions"][name]["input"]).get("caller")
        if not self.faults and any(caller_of(token) == caller for token in self.left_early):
            raise Violation("S9", f"the work of {name} begins, and its caller has timed out")

    def _check_stopped(self, name: str) -> None:
        """S10: only an own child is stopped, and none that was adopted."""
        child = self.services["children"].get(name)
        if child is None or child["status"] not in OPEN:
            return
        if self._child(name) is None:
            raise Violation("S10", f"{name} of another workflow is stopped")
        if name in self.adopted:
            raise Violation("S10", f"{name}, which an operator has redriven, is stopped")

    def _check_closed(self, execution: str, status: str) -> None:
        """S3: a workflow that has succeeded has recorded it, and so has its child."""
        row = self._rows().get(execution)
        if status != "SUCCEEDED":
            return
        if row is None or row["state"]["S"] != "SUCCEEDED":
            raise Violation(
                "S3", f"{execution} has SUCCEEDED, and its row is {row['state']['S'] if row else 'missing'}"
            )
        child = self._child(execution)
        if self._is_machine(execution) and (child is None or child["status"] != "SUCCEEDED"):
            raise Violation("S3", f"{execution} has SUCCEEDED without its child")

    def _check_answer(self, actor: str, question: Question, how: str) -> None:
        """S9: only the sender of ends answers, and an answer is an end that the row has.

        A redriven execution may record another end while the one before it is published.
        """
        if actor.partition(" ")[0] not in ("ending", "janitor"):
            raise Violation("S9", f"{actor} answers a caller")
        token = question.parameters["taskToken"]
        task = self.services["tasks"].get(token)
        if how in _UNDONE or task is None or task["status"] != "WAITS":
            return
        has_succeeded = question.operation == "send_task_success"
        rows = [row for row in self._rows().values() if row.get("task_token", {"S": ""})["S"] == token]
        ends = {row["state"]["S"] for row in rows}
        redriven = {row["execution"]["S"] for row in rows if self._was_redriven(row)}
        ends |= {end for name, end in self.recorded if name in redriven}
        is_an_end = any((state == "SUCCEEDED") == has_succeeded for state in ends & _STATUS.keys())
        if not is_an_end and not self._is_dead_lettered(token):
            raise Violation("S9", f"{token} is answered by {question.operation}, its request is {sorted(ends)}")
        if has_succeeded and not any(
            self._has_succeeded(row["execution"]["S"]) or self._was_redriven(row) for row in rows
        ):
            raise Violation("S9", f"{token} is answered with success, and no work has succeeded")
        if question.parameters.get("error") == "CallerGone":
            raise Violation("S9", f"{token} waits, and counts as gone")

    def _was_redriven(self, row: Record) -> bool:
        """Whether an operator has redriven its execution or its child."""
        name, executions = row["execution"]["S"], self.services["stepfunctions"]
        return name in self.redriven_at or (name in executions and bool(executions[name]["redrives"]))

    def _is_dead_lettered(self, token: str) -> bool:
        """Whether the message with this token is no request, and is dead-lettered."""
        return any(each.malformed and each.token == token for each in self.plan.requests) and bool(
            self.messages(code.DEAD_LETTERS)
        )

    def _note_published(self, question: Question) -> None:
        """S9: the answer comes first, then the event, then the notification."""
        if question.service == "sns":
            name, what = fields_of(question.parameters["Message"])["execution"].rpartition(":")[2], NOTICE
        else:
            detail = fields_of(question.parameters["Entries"][0]["Detail"])
            name, what = detail["deduplication_id"].rpartition("/")[0], detail["status"]
        row = self._rows().get(name)
        if row is not None and self._waits(row):
            raise Violation("S9", f"{what} of {name} is published before its caller is answered")
        if what == NOTICE and (name, "FAILED") not in self.published:
            raise Violation("S9", f"the {NOTICE} of {name} comes before its event")
        if row is not None and what != NOTICE and what not in {_STATUS.get(e) for n, e in self.recorded if n == name}:
            raise Violation("S9", f"{what} of {name} is published, and is not recorded")
        self.published |= {(name, what)}

    # Time ----------------------------------------------------------------------------------------------------------

    def _check_in_time(self) -> None:
        """The bounds in time, counted from the last fault. Called after the clock has moved."""
        if self.suspended_actor or not self.plan.first_run:
            return
        self._check_freed()
        self._check_started()
        for name in self._unrecorded() if self.denied else ():
            late = self.now - max(self.services["stepfunctions"][name]["stopped"] + GRACE, self.disturbed_at)
            if late > 3 * PERIOD and name not in self._holders():
                raise Violation("S3", f"{name} has no end {late:.0f} s after its grace time")
        for name in () if "reads" in self.denied else self._not_adopted():
            late = self.now - max(self.redriven_at[name], self.disturbed_at)
            if late > 2 * PERIOD:
                raise Violation("S1b", f"{name} was redriven, and holds no slot for {late:.0f} s")

    def _check_started(self) -> None:
        """S6: what may start, or must leave, does so within seconds, and after a fault with the janitor's next run.

        A reservation must first be old, and a request of a malformed item waits until it is repaired. A rate may delay
        it again after a grant that was taken back.
        """
        overdue = "" if self.is_malformed else self.overdue()
        self.overdue_since = self.overdue_since if overdue and overdue == self.was_overdue else self.now
        self.was_overdue = overdue
        process = self._process(process_of(overdue.partition(" ")[0])) if overdue else None
        permitted = (process.next_start - process.rate.lead) / 1000 if process and process.rate else 0.0
        late = self.now - max(self.overdue_since, permitted, self.disturbed_at, self.outage_until)
        most = 2 * PERIOD + code.AGE if self.faults or not self.plan.has_doorbell else PERIOD / 2
        if overdue and late > most:
            raise Violation("S6", f"{overdue} and nothing has happened for {late:.0f} s")

    def _check_freed(self) -> None:
        """S4: a janitor run stops a dead holder's work, and the two janitor runs after its end free the slot."""
        executions = self.services["stepfunctions"]
        for name, holder in self._holders().items():
            if holder.is_lease:
                late = self.now - max(holder.removable_from, self.disturbed_at)
                if late > PERIOD:
                    raise Violation("S4", f"the lease {name} has expired, and its slot was not freed for {late:.0f} s")
                continue
            if holder.state == "RESERVED" or stepfunctions.is_open(executions, name):
                continue
            dead = max(float(holder.since), executions[name]["stopped"] if name in executions else 0)
            late = self.now - max(dead + GRACE, self.disturbed_at)
            if self.is_unreadable(name):
                if late > 2 * PERIOD and not self.unreadable:
                    raise Violation("S4", f"{name} is dead, its work may not be read, and no janitor run reports it")
            elif self._is_machine(name):
                self._check_child_freed(name, dead)
            else:
                self._check_run_freed(name, dead)

    def _check_run_freed(self, name: str, dead: float) -> None:
        runs = [run for run in self.services["glue"][JOB]["runs"] if owner_of(run) == name]
        if any(run["state"] in glue.ALIVE and not run["stopping"] for run in runs):
            late = self.now - max(dead + GRACE, self.disturbed_at)
            if late > PERIOD:
                raise Violation("S4", f"{name} is dead, and its Glue run was not stopped for {late:.0f} s")
        elif all(run["state"] not in glue.ALIVE for run in runs):
            ended = max([run["ended"] for run in runs], default=0)
            late = self.now - max(dead + GRACE, self.disturbed_at, ended)
            if late > 2 * PERIOD:
                raise Violation("S4", f"{name} is dead, and its slot was not freed for {GRACE} + {late:.0f} s")
            self._check_freed_by_event(name, dead, ended)

    def _check_child_freed(self, name: str, dead: float) -> None:
        child = self._child(name)
        if child is not None and child["status"] in OPEN:
            late = self.now - max(dead + GRACE, self.disturbed_at, self.redriven_at.get(name, 0))
            if late > PERIOD and not child["redrives"]:
                raise Violation("S4", f"{name} is dead, and its child was not stopped for {late:.0f} s")
            return
        settles = self.plan.settle_seconds if child is not None and child["status"] != "FAILED" else 0
        ended = child["stopped"] + settles if child is not None else 0
        late = self.now - max(dead + GRACE, self.disturbed_at, ended)
        if late > 2 * PERIOD:
            raise Violation("S4", f"{name} is dead, and its slot was not freed for {GRACE} + {late:.0f} s")
        if name not in self.redriven_at:
            self._check_freed_by_event(name, dead, ended)

    def _check_freed_by_event(self, name: str, dead: float, ended: float) -> None:
        """S4: two checks free the slot, one and two gaps after the close. A stopping run delays them by one poll.

        After a fault or in an outage, the event comes again later.
        """
        if self.faults_at_close.get(name) != self.faults or max(self.disturbed_at, self.outage_until) > dead:
            return
        gap = CHECK_GAP + 10
        late = self.now - max(dead + gap, ended + WHILE_STOPPING_SECONDS) - gap
        if late > 0:
            raise Violation("S4", f"{name} is dead, its event arrived, and its slot is free {late:.0f} s too late")

    # The end -------------------------------------------------------------------------------------------------------

    def check_end(self) -> None:
        if self.actors:
            raise Violation("END", f"{sorted(self.actors)} wait")
        if left := [name for name, holder in self._holders().items() if not self._is_kept_for_operator(name, holder)]:
            raise Violation("S4", f"{sorted(left)} keep their slots")
        if self.messages(code.REQUESTS):
            raise Violation("S3", "messages are left on RequestQueue")
        if what := self.left():
            raise Violation("S3", what)
        for row in self._rows().values():
            self._check_ended(row)
        self._check_accounted()
        for name in self.discarded:
            if self._rows()[name]["state"]["S"] != "FAILED":
                raise Violation("S3", f"{name} is reported as discarded, and was redriven")
        for token, task in self.services["tasks"].fields.items():
            is_left = self._is_queued(token) or bool(self.forced & {*self._executions_of(token)})
            if task["status"] == "WAITS" and "answers" not in self.denied and not is_left:
                raise Violation("S9", f"{token} waits, and no actor will answer it")
        texts = [message["body"] for message in self.messages(code.DEAD_LETTERS)]
        texts += [execution["input"] for execution in self.services["stepfunctions"].fields.values()]
        if any("token-" in text for text in texts):
            raise Violation("S9", "a token is where an operator reads it")

    def _is_kept_for_operator(self, name: str, holder: Holder) -> bool:
        return not holder.is_lease and self.is_unreadable(name)

    def _is_queued(self, token: str) -> bool:
        """Whether the request of a caller is blocked or paused, or its process was removed."""
        rows = [row for row in self._rows().values() if row.get("task_token", {"S": ""})["S"] == token]
        return any("place" in row or self._process(row["process_name"]["S"]) is None for row in rows)

    def _check_ended(self, row: Record) -> None:
        """S3: how a request of the plan may end."""
        request, state = self._sent(row), row["state"]["S"]
        process = self._process(request.process)
        is_blocked = not self._lines(request.process, [row["execution"]["S"]])
        if state == "QUEUED" and process and (process.paused or is_blocked):
            return
        code_given = row.get("code", {"S": ""})["S"]
        allowed = {
            "SUCCEEDED": True,
            "FAILED": True,
            "REDRIVEN": True,
            "RETURNED": True,
            "SKIPPED": request.skips,
            "TOO_LATE": request.deadline is not None,
            "CANCELLED": request.id in self.plan.cancels,
            "REJECTED": self._may_be_rejected(row, code_given),
        }
        if not allowed.get(state):
            raise Violation("S3", f"{row['request_id']['S']} is {state} {code_given}")
        name = row["execution"]["S"]
        if state in _WITHOUT_START and name in self.worked and not self._was_redriven(row):
            raise Violation("S3", f"{name} is {state}, and its work has begun")
        if state == "SUCCEEDED" and name not in self.worked:
            raise Violation("S3", f"{name} is SUCCEEDED, and its work has not begun")

    def _may_be_rejected(self, row: Record, given: str) -> bool:
        request_id = row["request_id"]["S"]
        return {
            "InvalidExecution": request_id in self.plan.rejects,
            "UnknownProcess": bool(self.plan.replacements),
            "LeasesOnly": bool(self.plan.target),
            "RequestIdReused": "#" in row["execution"]["S"],
            "NameTaken": False,
        }.get(given, False)

    def _check_accounted(self) -> None:
        """S3: each message has a row, or is a dead letter whose end is published."""
        rows, dead_letters = self._rows(), self.messages(code.DEAD_LETTERS)
        for request in self.plan.requests:
            names = {row["request_id"]["S"] for row in rows.values() if row["process_name"]["S"] == request.process}
            if request.id not in names and not request.malformed:
                raise Violation("S3", f"request {request.id} has no row")
        if bool(dead_letters) != any(each.malformed for each in self.plan.requests):
            raise Violation("S3", f"the dead letters are {dead_letters}")
        for message in dead_letters:
            if (message["group"], "DEAD_LETTERED") not in self.published:
                raise Violation("S9", f"the end of the message {message['group']} is not published")
        for name, row in rows.items():
            again = [each for each in rows.values() if each["message_id"] == row["message_id"]]
            if row["state"]["S"] not in ("RETURNED", "REDRIVEN"):
                continue
            following = [each for each in again if int(each["attempt"]["N"]) == int(row["attempt"]["N"]) + 1]
            if len(following) != 1:
                raise Violation("S3", f"{name} is {row['state']['S']}, and has {len(following)} next attempts")
