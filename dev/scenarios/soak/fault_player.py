"""Carries out a plan: sends requests, causes and removes faults, runs the janitor, waits until no request is left."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Any, Self

from dev.emulator.faults import Faults
from dev.emulator.live_view import LiveView, Snapshot
from dev.judge.slot_item import Item

from .soak_plan import RESTARTED, Fault, Plan, Send
from .soak_records import FaultMark, JanitorRun, SentMessage
from .soak_stack import JANITOR_PERIOD, SoakStack

TICK = 0.04  # seconds
WAKE_AFTER = 0.3  # seconds after a limit was changed
LATE = 1.2  # seconds of an answer's delay, during which the containers are killed
CALL_WITHIN = 4.0  # seconds to wait for the call during which the containers are killed
# Seconds without a change, after which the claims report the remainder. A killed janitor has its lease for so long.
STALLED_AFTER = 180.0


class JanitorClock:
    """Runs the janitor every few seconds, except while `paused` is set. A context manager."""

    def __init__(self, stack: SoakStack) -> None:
        self.runs: list[JanitorRun] = []
        self.paused = threading.Event()
        self._stack = stack
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True)

    def _loop(self) -> None:
        while not self._stopped.wait(JANITOR_PERIOD):
            if not self.paused.is_set():
                self.runs.append(self._stack.run_janitor())

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(5)


@dataclass(frozen=True)
class SlotState:
    """The queue, the executions and the slot table. `writes`: of the table so far."""

    queued: int
    running: int
    slots: Mapping[str, Item]
    writes: int

    @property
    def settled(self) -> bool:
        """No request is queued, runs or holds a slot."""
        return not (self.queued or self.running or any(slot.holders for slot in self.slots.values()))


@dataclass
class FaultPlayer:
    stack: SoakStack
    plan: Plan
    view: LiveView
    janitor: JanitorClock
    started: float = field(default_factory=time.time)
    sent: list[SentMessage] = field(default_factory=list)
    marks: list[FaultMark] = field(default_factory=list)
    phase: str = "storm"

    def __post_init__(self) -> None:
        self.faults = Faults(self.stack.aws.state_dir)
        self._later: list[tuple[float, int, Callable[[], object]]] = []
        self._order = count()
        self._rules: dict[str, tuple[str, str, int]] = {}  # kind, details, times known
        self._rules_read = self.started
        self._shown = 0.0

    # ---------------------------------------------------------------------------------------------------- the phases

    def storm(self) -> None:
        """Send and cause everything in the plan, at its time."""
        for send in self.plan.sends:
            self._at(send.at, partial(self.send, send))
        for fault in self.plan.faults:
            self._at(fault.at, partial(self.cause, fault))
        while self._later or self._elapsed() < self.plan.seconds:
            while self._later and self._later[0][0] <= self._elapsed():
                heappop(self._later)[2]()
            self._show()
            time.sleep(TICK)

    def remove_faults(self) -> None:
        """Remove all faults, restore the limits, resume the processes."""
        self._mark_rules()
        self.faults.clear()
        self.stack.status_events(lost=False)
        for process, limit in self.plan.limits.items():
            self.stack.operations.resume(process)
            self.stack.operations.set_limit(process, limit)

    def settle(self, phase: str, *, janitor_runs: int) -> None:
        """Wait until no request is left, and then for these janitor runs. Stop if nothing changes any more."""
        self.phase = phase
        last, since = self._read_state(), time.time()
        while not last.settled:
            if time.time() - since > STALLED_AFTER:
                return
            self._show()
            time.sleep(TICK * 5)
            state = self._read_state()
            if state != last:
                last, since = state, time.time()
        enough = self._complete_runs() + janitor_runs
        deadline = time.time() + STALLED_AFTER
        while self._complete_runs() < enough and time.time() < deadline:
            self._show()
            time.sleep(TICK)

    def _complete_runs(self) -> int:
        return sum(run.ok for run in self.janitor.runs)

    # ----------------------------------------------------------------------------------------------------- faults

    def send(self, send: Send) -> None:
        body = json.dumps(send.body())
        self.sent.append(self.stack.send(send.process, send.request_id, body, send.request_id))

    def cause(self, fault: Fault) -> None:
        fields = fault.fields
        match fault.kind:
            case "engine restarted" | "engine killed":
                self._restart(fields["hard"])
            case "containers killed":
                self._kill(fields["call"])
            case "abort":
                self._pick(fault, self.stack.running(), self.stack.abort)
            case "redriven":
                self._pick(fault, self.stack.unsuccessful(), self.stack.redrive)
            case "abort, run left alive":
                rule = self.faults.add("RunGlueJob", "leave_running")
                self._when_met(rule, lambda met: self._abort_soon(fault.kind, met))
            case "limit changed":
                process, limit = fields["process"], self.plan.limits[fields["process"]]
                self._set_limit(process, fields["limit"])
                self._undo_later(fault, lambda: self._set_limit(process, limit))
            case "paused":
                self.stack.operations.pause(fields["process"])
                self._undo_later(fault, lambda: self.stack.operations.resume(fields["process"]))
            case "status events lost":
                self.stack.status_events(lost=True)
                self._undo_later(fault, lambda: self.stack.status_events(lost=False), every_process=True)
            case "bad message":
                self._send_bad(fields["process"], fields["what"])
            case "redelivery" | "sent again" | "woken for nothing":
                self._repeat(fault)
            case _:
                rule = self.faults.add(
                    fields["state"],
                    fields["action"],
                    error=fields["error"] or "States.TaskFailed",
                    seconds=LATE,
                    times=fields["times"],
                )
                self._rules[rule] = (fault.kind, f"{fields['state']}: {fields['action']}", 0)

    def _restart(self, hard: bool) -> None:
        self._mark_rules()
        self._rules.clear()  # the engine forgets them
        started = time.time()
        self.stack.aws.restart(hard=hard)
        self._mark(RESTARTED[hard], started=started)

    def _kill(self, call: str) -> None:
        """Kill the containers during a call that takes effect, so that the caller gets no answer; or without a call."""
        if call:
            rule = self.faults.add(call, "late", seconds=LATE)
            self._when_met(rule, lambda _met: self._kill_now(call), otherwise=lambda: self._kill_now(""))
        else:
            self._kill_now("")

    def _kill_now(self, call: str) -> None:
        killed = self.stack.kill_containers()
        if killed:
            self._mark("containers killed", f"{killed} of them, in {call or 'no call'}")

    def _pick(self, fault: Fault, names: list[str], action: Callable[[str], bool]) -> None:
        if names:
            self._control(fault.kind, sorted(names)[int(fault.fields["draw"] * len(names))], action)

    def _control(self, kind: str, name: str, action: Callable[[str], bool]) -> None:
        if action(name):
            self._mark(kind, name, name.rsplit("-", 1)[0])

    def _abort_soon(self, kind: str, met: list[str]) -> None:
        """Abort after a moment, so that there is a Glue run."""
        self._at(self._elapsed() + 0.4, lambda: self._control(kind, met[0], self.stack.abort))

    def _undo_later(self, fault: Fault, action: Callable[[], object], *, every_process: bool = False) -> None:
        started, fields = time.time(), fault.fields

        def undo() -> None:
            action()
            self._mark(fault.kind, str(fields.get("limit", "")), "" if every_process else fields["process"], started)

        self._at(self._elapsed() + fields["seconds"], undo)

    def _set_limit(self, process: str, limit: int) -> None:
        self.stack.operations.set_limit(process, limit)
        # A hidden message becomes visible only by a wake (F6).
        self._at(self._elapsed() + WAKE_AFTER, lambda: self.stack.wake_without_release(process))

    def _send_bad(self, process: str, what: str) -> None:
        request_id = f"bad-{len(self.sent)}"
        body: dict[str, Any] = {"process": process, "request_id": request_id, "arguments": {}}
        group = process
        if what == "unknown process":
            body["process"] = group = "soak-unknown"
        elif what == "another group":
            body["process"] = "soak-b" if process == "soak-a" else "soak-a"
        elif what == "reserved argument":
            body["arguments"] = {"--slotkeeper-execution": "another-execution"}
        text = "{not JSON" if what == "not JSON" else json.dumps(body)
        self.sent.append(self.stack.send(group, request_id, text, request_id, bad=what))
        self._mark("bad message", what, process)

    def _repeat(self, fault: Fault) -> None:
        process = fault.fields["process"]
        if fault.kind == "woken for nothing":
            if self.stack.wake_without_release(process):
                self._mark(fault.kind, "", process)
            return
        sent = [each for each in self.sent if each.process == process and not each.bad]
        if not sent:
            return
        chosen = sent[int(fault.fields["draw"] * len(sent))]
        if fault.kind == "sent again":
            # As by a producer that repeats a send: the same request in another message.
            self.stack.send(process, chosen.request_id, chosen.body, f"{chosen.request_id}-{time.monotonic_ns()}")
        elif self.stack.has_started(chosen):
            self.stack.redeliver(chosen)
        else:
            return  # SQS delivers only the head of a group
        self._mark(fault.kind, chosen.request_id, process)

    # ------------------------------------------------------------------------------------------------- bookkeeping

    def _mark(self, kind: str, detail: str = "", process: str = "", started: float | None = None) -> None:
        now = time.time()
        self.marks.append(FaultMark(now if started is None else started, kind, detail, process, now))

    def _mark_rules(self) -> None:
        """Mark each action of a rule since the last call. A rule may act several times."""
        now = time.time()
        for rule, (kind, detail, known) in self._rules.items():
            met = self.faults.met(rule)
            for name in met[known:]:
                self.marks.append(FaultMark(self._rules_read, kind, detail, name.rpartition("-")[0], now))
            self._rules[rule] = (kind, detail, len(met))
        self._rules_read = now

    def _when_met(
        self, rule: str, action: Callable[[list[str]], None], otherwise: Callable[[], None] | None = None
    ) -> None:
        deadline = time.time() + CALL_WITHIN

        def check() -> None:
            met = self.faults.met(rule)
            if met or time.time() > deadline:
                if met:
                    action(met)
                elif otherwise is not None:
                    otherwise()
                self.faults.remove(rule)
            else:
                self._at(self._elapsed() + TICK, check)

        check()

    def _at(self, elapsed: float, action: Callable[[], object]) -> None:
        heappush(self._later, (elapsed, next(self._order), action))

    def _elapsed(self) -> float:
        return time.time() - self.started

    def _read_state(self) -> SlotState:
        slots = self.stack.journal.read()
        return SlotState(self.stack.queued(), len(self.stack.running()), dict(slots), len(self.stack.journal.changes))

    def _show(self) -> None:
        """Update the view if it is due."""
        now = time.time()
        if now - self._shown < self.view.interval:
            return
        self._shown = now
        self._mark_rules()
        state = self._read_state()
        paused = [name for name, slot in sorted(state.slots.items()) if slot.paused]
        counts: dict[str, int | str] = {
            "phase": self.phase,
            "sent": len(self.sent),
            "queued": state.queued,
            "running": state.running,
            "janitor runs": len(self.janitor.runs),
            "faults": len(self.marks),
            "last": self.marks[-1].kind if self.marks else "none",
        }
        gauges = {name: (slot.weight, slot.limit) for name, slot in sorted(state.slots.items())}
        if paused:
            counts["paused"] = ", ".join(paused)
        seconds = round(min(self._elapsed(), self.plan.seconds))
        self.view.show(Snapshot(self._elapsed(), False, seconds, round(self.plan.seconds), gauges, counts))
