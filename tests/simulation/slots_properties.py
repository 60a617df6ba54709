"""The checks of S1 to S8, S1b, S1c and S2b (docs/correctness.md) for a state of the slots' world."""

from __future__ import annotations

import json
from functools import cache
from itertools import chain
from typing import Any

from dev.judge.slot_item import Asked, Holder, Item, Writer, wrong_item, wrong_step
from slotkeeper.settings import CLOCK_SKEW_SECONDS
from slotkeeper.slots import process as items
from slotkeeper.slots.closed_executions import WHILE_STOPPING_SECONDS
from slotkeeper.slots.process import SETTLED_SECONDS, higher
from slotkeeper.slots.queues import backoff_seconds, hide_seconds
from slotkeeper.slots.rate import Rate
from slotkeeper.slots.request import PRIORITIES, Priority, execution_name, message_group
from slotkeeper.slots.targets import is_state_machine
from tests.simulation import slots_actors as code
from tests.simulation.aws import glue, stepfunctions
from tests.simulation.aws.stepfunctions import OPEN
from tests.simulation.frozen import Record, freeze
from tests.simulation.slots_state import (
    CHECK_GAP,
    GRACE,
    JOB,
    NO_PROCESS,
    PERIOD,
    PROCESS,
    STEP,
    SlotsState,
    code_of,
    group_of,
    id_of,
    name_of,
    owner_of,
    process_of,
    request_of,
    right_steps,
    version_of,
)
from tests.simulation.workflow import FAILED, REQUESTS
from tests.simulation.worlds import Violation

_NONE = freeze({"M": {}})


class SlotsProperties(SlotsState):
    """The state with its checks: after each step, as the clock moves, and at the end."""

    def check(self) -> None:
        now = (self.services["dynamodb"], self.services["glue"], self.services["children"])
        if now == self._checked:
            return
        self._checked = now
        for name in self.processes:
            item, before = self._item(name), self._before[name]
            if item is not before:
                self._before = self._before | {name: item}
                self._check_process(item, before)
                self._check_names(item, before)
        holders = self._holders()
        if self.timeless and not self.faults and not self.removed:
            self._check_registrations(holders)
        owners = [owner_of(run) for run in self._alive()]
        for owner in owners:
            if owner not in holders:
                raise Violation("S1b", f"a Glue run of {owner} is alive, and {owner} holds no slot")
            if owners.count(owner) > 1:
                raise Violation("S1b", f"two Glue runs of {owner} are alive in one slot")

    def _check_registrations(self, holders: dict[str, Holder]) -> None:
        """S6: without a fault, only a request that waits is registered, since a registration keeps others out.

        A starter that works on a message may register it although another starter has consumed it. Of two messages with
        one id, the second may wait while the first one's execution holds a slot.
        """
        ids = [id_of(request) for request in self.plan.requests]
        here = {message["sequence"] for message in self._queue()["messages"]}
        working = {actor.notes.message.partition("#")[0] for actor in self.actors.values() if actor.notes.message}
        for process in filter(None, map(self._process, self.processes)):
            for each in process.waiting.values():
                if each.execution in holders and ids.count(each.request_id) == 1:
                    raise Violation("S6", f"{each.execution} holds a slot and is registered, so it keeps others out")
                is_gone = int(each.sequence) not in here
                if is_gone and each.receipt_handle.partition("#")[0] not in working:
                    raise Violation("S6", f"{each.execution} keeps others out although its message is gone")

    def _check_process(self, item: Record, before: Record) -> None:
        """The judge's verdict on a write of a process's item, and S1c for the blocks that run."""
        if item is NO_PROCESS or before is NO_PROCESS:
            self.starts = ()
            return  # removed or added, and empty
        new, old, writer = version_of(item), version_of(before), self._writer()
        judged = (before, item, writer, self.plan.requests, self.plan.callers)
        if judged not in right_steps:
            for breach in chain(wrong_item(new), wrong_step(old, new, self._asked, writer)):
                raise Violation(breach.guarantee, breach.text)
            right_steps.add(judged)
        granted = {name for name in new.holders.keys() - old.holders.keys() if not new.holders[name].redriven}
        if granted and self.blocks and new.process == PROCESS:
            self._check_at_work(new, granted)
        if granted and self.plan.rate:
            self._check_rate(new.process, self.plan.rate)

    def _asked(self, name: str, _: Holder) -> Asked:
        return Asked(_priority_of(name, self.plan.requests, self.plan.callers))

    def _writer(self) -> Writer | None:
        """The actor whose call is performed."""
        actor, ahead = self._acting
        return Writer(code_of(actor), self.now + ahead)

    def _check_names(self, item: Record, before: Record) -> None:
        """S3b after a write: a name ends with its message or moves to `lost`, and no note is wrong."""
        if "waiting" not in item or "waiting" not in before or self.plan.callers:
            return  # of a removed process; and a dead letter does not have its request's token, nor its name
        noted, noted_before = _noted(item), _noted(before)
        executions, dead = self.services["stepfunctions"], self._names_in(code.DEAD_LETTERS)
        for name in _named(before) - _named(item) - noted.keys():
            if name not in item["holders"]["M"] and name not in executions and name not in dead:
                raise Violation("S3b", f"{name} waits, and its process's item names it no more")
        # A starter may still dead-letter a message that was removed.
        exist = self._names_in(REQUESTS) | (set() if self.removed else dead)
        for name in noted.keys() - noted_before.keys():
            if name in exist and not self._is_sent_twice(name):
                raise Violation("S3b", f"{name} is noted as lost although its message exists")
        for name in noted.keys() & noted_before.keys():
            is_reported = "reported" in noted[name]["M"] and "reported" not in noted_before[name]["M"]
            if is_reported and name in executions:
                raise Violation("S3b", f"{name} is reported as lost although it has been started")

    def _is_sent_twice(self, name: str) -> bool:
        ids = [id_of(request) for request in self.plan.requests]
        return any(ids.count(id_of(each)) > 1 and name_of(each) == name for each in self.plan.requests)

    def unreported(self) -> str:
        """S3b: a request that is still to be noted or reported as lost, since RequestQueue is empty."""
        if self._queue()["messages"]:
            return ""
        for name in self.processes:
            if left := _named(self._item(name)):
                return min(left)
            # In a timeless world the janitor's clock stands still.
            if left := {each for each, note in _noted(self._item(name)).items() if "reported" not in note["M"]}:
                return "" if self.timeless else min(left)
        return ""

    def _check_at_work(self, item: Item, granted: set[str]) -> None:
        """S1c: with each grant, the weights of what works and of what is granted stay within the limit.

        A block counts until its lease ends, by its caller's clock and by each clock that differs by less than the skew.
        In a timeless world the latest clock that has acted shows how much time has passed.
        """
        working = {owner_of(run) for run in self._alive()}
        working |= {name for name, child in self.services["children"].fields.items() if child["status"] in OPEN}
        weights = [item.holders[name].weight for name in (working & item.holders.keys()) | granted]
        codes = {item.holders[name].code for name in granted}
        for caller, (until, weight) in self.blocks.items():
            moment = max(self.now + self.ahead_of(caller), self.latest_clock - CLOCK_SKEW_SECONDS)
            if moment < until and code_of(caller) not in codes:
                weights.append(weight)
        if sum(weights) > item.limit:
            text = f"the weight at work is {sum(weights)}, the limit {item.limit}"
            raise Violation("S1c", f"{sorted(granted)} granted: {text}")

    def _check_rate(self, process: str, rate: Rate) -> None:
        """S11, with a start: in no time more than the rate allows, by the clock of the first and the latest clock."""
        latest = self.now + max(*self.plan.ahead, *self.plan.leases, 0.0)
        # A call that arrives late begins no time: its sender's clock had shown an earlier one.
        self.starts = (*self.starts, (process, self.now, self._shown))
        of_process = [clock for name, _, clock in self.starts if name == process]
        for before, began in enumerate(of_process):
            allowed = rate.burst + (latest - began) * 1000 / rate.interval
            if len(of_process) - before > allowed:
                times = [at for name, at, _ in self.starts if name == process][before:]
                raise Violation("S11", f"{process} starts at {times}, more than its rate {rate} allows")

    def ahead_of(self, name: str) -> float:
        """The lead of the clock of a starter or of a lease's caller; 0 for other actors with a clock that runs."""
        kind, _, number = name.partition(" ")
        if kind == "starter":
            return self.plan.ahead[int(number) - 1]
        return self.plan.leases[int(number)] if kind == "caller" else 0.0

    def _note_to_wakes(self) -> None:
        """Note since when requests wait that fit. Called before the clock moves."""
        before, self._to_wake = self._to_wake, {}
        for name in self.processes:
            process = self._process(name)
            first = process.first if process else None
            if process and first and self._may_start(process, first.weight, first.token_bytes):
                self._to_wake[first.receipt_handle] = first, before.get(first.receipt_handle, (None, self.now))[1]
        for process, request, message in self._waiting():
            handle = message["handle"]
            registered = {each.receipt_handle for each in process.waiting.values()}
            position = str(message["sequence"]).zfill(40), message["receives"]
            weight = request.weight or process.default_weight
            admits = process.admits(weight, request.priority, position, len(request.task_token))
            if handle not in registered and admits and self._is_due(process):
                self._to_wake[handle] = None, before.get(handle, (None, self.now))[1]

    def _check_not_again(self, execution: str) -> None:
        """S7, before a run is started: no run of the same request has succeeded."""
        executions = self.services["stepfunctions"]
        request = request_of(executions[execution]["input"])
        succeeded = [owner_of(run) for run in self.services["glue"][JOB]["runs"] if run["state"] == "SUCCEEDED"]
        for owner in filter(None, succeeded):
            if request_of(executions[owner]["input"]) == request:
                raise Violation("S7", f"{execution} starts a run although the run of {owner} has SUCCEEDED")

    def _check_size(self, execution: str, request: dict[str, Any]) -> None:
        """S1, when a workflow is started: its request has the weight of its slot, if that is still reserved."""
        process = self._process(request["process"])
        holder = process.holders.get(execution) if process else None
        if process and holder and holder.weight != (request.get("weight") or process.default_weight):
            raise Violation("S1", f"{execution} of weight {request.get('weight')} starts in a slot of {holder.weight}")

    def _check_order(self, given: str) -> None:
        request = request_of(given)
        # A request that was sent twice may start from its second message if the first was dead-lettered.
        number = self.groups.index(group_of(request))
        last = self.order[number]
        places = [place for place, sent in enumerate(self.plan.requests) if sent == request and place >= last]
        if request in self.removed:
            return  # the messages after it were delivered while its starter was still working
        if not places:
            raise Violation("S5", f"{request} starts after {self.plan.requests[last]}, which was sent after it")
        self.order = (*self.order[:number], places[0], *self.order[number + 1 :])

    def _check_in_time(self) -> None:
        """The bounds in time, counted from the last fault. Called after the clock has moved."""
        if not self.suspended_actor:
            self._check_freed()
            self._check_woken()
            self._check_settled()
            self._check_reported()

    def _check_freed(self) -> None:
        """S4: a janitor run stops a dead holder's Glue run, and the two janitor runs after its end free the slot."""
        executions = self.services["stepfunctions"]
        for name, holder in self._holders().items():
            if holder.is_lease:
                late = self.now - max(holder.removable_from, self.disturbed_at)
                if late > PERIOD:
                    raise Violation("S4", f"the lease {name} has expired, and its slot was not freed for {late:.0f} s")
                continue
            if stepfunctions.is_open(executions, name):
                continue
            dead = float(holder.since)  # also for a reservation of an execution that closed long ago
            dead = max(dead, executions[name]["stopped"]) if name in executions else dead
            late = self.now - max(dead + GRACE, self.disturbed_at)
            if self.is_unreadable(name) and holder.state == "RUNNING":
                if late > 2 * PERIOD and not self.unreadable:
                    raise Violation("S4", f"{name} is dead, its work may not be read, and no janitor run reports it")
                continue
            if is_state_machine(self.target_of(name.rpartition("-")[0])):
                self.check_child_freed(name, holder, dead)
                continue
            runs = [run for run in self.services["glue"][JOB]["runs"] if owner_of(run) == name]
            if any(run["state"] in glue.ALIVE and not run["stopping"] for run in runs):
                if late > PERIOD:
                    raise Violation("S4", f"{name} is dead, and its Glue run was not stopped for {late:.0f} s")
            elif all(run["state"] not in glue.ALIVE for run in runs):
                late = self.now - max(dead + GRACE, self.disturbed_at, *(run["ended"] for run in runs))
                if late > 2 * PERIOD:
                    raise Violation("S4", f"{name} is dead, and its slot was not freed for {GRACE} + {late:.0f} s")
                self._check_freed_by_event(name, dead, max([run["ended"] for run in runs], default=0))

    def _check_reported(self) -> None:
        """S3b: while RequestQueue is empty, each name becomes a note, and each note is reported or dropped."""
        if self._queue()["messages"]:
            self.left_queue_at = self.now
        for process in filter(None, map(self._process, self.processes)) if self.unreported() else ():
            due = [each.back_at or 0 for each in process.named.values()]
            due += [each.noted for each in process.lost.values() if each.reported is None]
            late = self.now - max([each + SETTLED_SECONDS for each in due], default=self.now)
            late = min(late, self.now - max(self.left_queue_at, self.disturbed_at, self.outage_until))
            if late > 2 * PERIOD:
                raise Violation("S3b", f"a lost request of {process.name} was not reported for {late:.0f} s")

    def _check_settled(self) -> None:
        """S3: what may not be read or answered keeps no request from being settled, once its slot is free."""
        holders, executions = self._holders(), self.services["stepfunctions"]
        for name in self._unsettled() if self.denied else ():
            late = self.now - max(executions[name]["stopped"] + GRACE, self.disturbed_at)
            if late > 3 * PERIOD and name not in holders:
                raise Violation("S3", f"{name} is not settled {late:.0f} s after its grace time")

    def check_child_freed(self, name: str, holder: Holder, dead: float) -> None:
        """S4 for a dead holder whose target is a state machine."""
        raise NotImplementedError

    def _check_freed_by_event(self, name: str, dead: float, ended: float) -> None:
        """S4: two checks free the slot, one and two gaps after the close. A stopping run delays them by one poll."""
        if self.faults_at_close.get(name) != self.faults or self.disturbed_at > dead:
            return
        gap = CHECK_GAP + STEP
        late = self.now - max(dead + gap, ended + WHILE_STOPPING_SECONDS) - gap
        if late > 0:
            raise Violation("S4", f"{name} is dead, its event arrived, and its slot is free {late:.0f} s too late")

    def _check_woken(self) -> None:
        """S6: the next janitor run wakes the request whose turn it is, if it fits, or clears its registration.

        A message of a lower priority becomes visible at the end of a turn, so at the clock's next step.
        A message without a registration comes back after its starter's backoff. Without a backoff it comes back when
        its hiding time ends: its starter may have died after the hide, while its process was removed and added again.
        """
        sent_at = {message["handle"]: message["sent_at"] for message in self._queue()["messages"]}
        for handle, (registration, since) in self._to_wake.items():
            late = self.now - max(since, self.disturbed_at)
            bound: float = PERIOD
            if registration is not None and higher(registration.priority):
                bound += STEP
            if registration is None and (deferred := self.deferred.get(handle)) is not None:
                late = min(late, self.now - deferred)
                bound = backoff_seconds(int(handle.partition("#")[2]), code.VISIBILITY) + STEP
            elif registration is None:
                bound = hide_seconds(since - sent_at.get(handle, since), code.VISIBILITY) + STEP
            if late > bound:
                raise Violation("S6", f"{handle} waits although it fits, for {late:.0f} s")

    def overlooked(self) -> str:
        """S6: a waiting request that fits and whose turn it is, while no actor works; empty if there is none.

        Without a fault, no message needs the end of its hiding time to start or to be dead-lettered. A registration
        whose message was removed keeps others out until the next janitor run. A message that a fault has left without
        a registration comes back when its hiding time ends, and the next janitor run corrects all else. A message whose
        wake a turn has delayed comes back at the end of the turn.
        """
        if self.actors:
            return ""
        if self.faults or self.removed:
            if not self.timeless:
                return ""  # see _check_woken
            for name in self.processes:
                process = self._process(name)
                first = process.first if process else None
                if process and first and self._may_start(process, first.weight, first.token_bytes):
                    return f"{first.execution} waits although it fits, or keeps others out although its message is gone"
        if self.faults:
            return ""
        seen: set[str] = set()
        for process, request, message in self._waiting():
            if request.execution_name in process.cancelled:
                return f"{message['id']} is cancelled and waits, and no actor will wake it"
            if process.name in seen or self.is_blocked(message):
                continue
            seen.add(process.name)
            first = process.first
            if self.removed and first and first.execution != request.execution_name:
                continue  # kept out by a registration without a message, until that would fit
            is_delayed = message["visible_at"] <= self.now + items.TURN_SECONDS
            if self._fits(process, request) and self._is_due(process) and not is_delayed:
                return f"{message['id']} waits although it fits, and no actor will wake it"
        return ""

    def check_end(self) -> None:
        if name := self.unreported():
            raise Violation("S3b", f"the message of {name} is gone, and nothing reports it")
        if self._holders():
            raise Violation("S4", f"{sorted(self._holders())} hold slots, and no actor will free them")
        executions = self.services["stepfunctions"]
        left = [message["id"] for message in self._queue()["messages"] if not self.is_blocked(message)]
        if left:
            raise Violation("S3", f"{left} are still on the queue")
        dead = {request_of(message["body"]) for message in self.services["sqs"][code.DEAD_LETTERS]["messages"]}
        kept = {
            message["attributes"]["execution_name"]["StringValue"]
            for message in self.services["sqs"][FAILED]["messages"]
        }
        started = {request_of(execution["input"]) for execution in executions.fields.values()}
        waiting = {request_of(message["body"]) for message in self._queue()["messages"]}  # blocked requests
        rows = self.services["dynamodb"][code.SETTLED].fields.values()
        skipped = {(row["request_id"]["S"], int(row["attempt"]["N"])) for row in rows if "skipped_at" in row}
        for request in set(self.plan.requests) - self.removed:
            if request not in started and request not in dead | waiting and (id_of(request), 1) not in skipped:
                raise Violation("S3", f"request {request} was neither started nor dead-lettered")
        bodies = [json.loads(message["body"]) for message in self.services["sqs"][code.DEAD_LETTERS]["messages"]]
        ended = skipped | {(body["request_id"], body.get("attempt", 1)) for body in bodies}
        for name in self._unsuccessful():
            request = json.loads(executions[name]["input"])
            caller = request.get("caller", "")
            again = execution_name(request["process"], request["request_id"], request["attempt"] + 1, caller)
            is_again = again in executions or (request["request_id"], request["attempt"] + 1) in ended
            if name not in kept and not is_again and not self.has_succeeded(name):
                raise Violation("S3", f"{name} ended as {executions[name]['status']}: neither kept nor queued again")


def _named(item: Record) -> set[str]:
    """The executions of the waiting requests that an item names."""
    entries = item.get("waiting", _NONE)["M"].fields.values()
    return {entry["M"]["execution"]["S"] for entry in entries if "execution" in entry["M"]}


def _noted(item: Record) -> dict[str, Record]:
    return item.get("lost", _NONE)["M"].fields  # type: ignore[no-any-return]


@cache
def _priority_of(execution: str, requests: tuple[str, ...], callers: str) -> Priority:
    """The priority of a request, by its execution's name; the highest, if requests of several have its id."""
    for attempt in range(1, 100):
        for priority in PRIORITIES:
            for request in requests:
                is_of_it = group_of(request) == message_group(process_of(request), priority)
                if is_of_it and execution in (name_of(request, callers, attempt), name_of(request, "", attempt)):
                    return priority
    raise AssertionError(execution)
