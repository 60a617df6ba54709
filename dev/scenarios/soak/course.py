"""Plays a plan: sends, does the damage, mends it, lets the janitor go round, and watches until all is settled."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import Any

from dev.emulator.faults import Faults
from dev.scenarios.runner.viewing import View

from .beside import Rounds, Snapshot
from .plan import RESTARTED, Fault, Plan, Send
from .records import Mark, Round, Sent
from .stage import Stage

TICK = 0.04  # seconds
KNOCK = 0.3  # seconds after a limit was changed
LATE = 1.2  # seconds for which an answer is held back while the containers are killed
PATIENCE = 4.0  # seconds to wait for the call in which they are to be killed
STALLED_AFTER = 90.0  # seconds without any movement: what is left then is for the checks to say


@dataclass
class Course:
    stage: Stage
    plan: Plan
    view: View[Snapshot]
    rounds: Rounds
    began: float = field(default_factory=time.time)
    sent: list[Sent] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    phase: str = "storm"

    def __post_init__(self) -> None:
        self.faults = Faults(self.stage.aws.state_dir)
        self._later: list[tuple[float, int, Callable[[], object]]] = []
        self._order = count()
        self._rules: dict[str, tuple[str, str, int]] = {}  # kind, what it does, how often it was seen to have acted
        self._looked = self.began
        self._shown = 0.0

    # ---------------------------------------------------------------------------------------------------- the phases

    def storm(self) -> None:
        """Everything that is planned, at its time."""
        for send in self.plan.sends:
            self._at(send.at, lambda send=send: self.send(send))  # type: ignore[misc]
        for fault in self.plan.faults:
            self._at(fault.at, lambda fault=fault: self.do(fault))  # type: ignore[misc]
        while self._later or self._elapsed() < self.plan.seconds:
            while self._later and self._later[0][0] <= self._elapsed():
                heappop(self._later)[2]()
            self._show()
            time.sleep(TICK)

    def mend(self) -> None:
        """Every fault out, every limit as it was, nobody paused."""
        self._note_rules()
        self.faults.clear()
        self.stage.status_events(lost=False)
        for process, limit in self.plan.limits.items():
            self.stage.operations.resume(process)
            self.stage.operations.set_limit(process, limit)

    def settle(self, phase: str, *, rounds: int) -> None:
        """Waits until nothing is left, and then for so many rounds of the janitor; or until nothing moves any more."""
        self.phase = phase
        still: tuple[Any, float] = (None, 0.0)
        while not (seen := self._show(everything=True)).settled:
            state = (seen.queued, seen.running, seen.slots, len(self.stage.journal.changes))
            if state != still[0]:
                still = (state, time.time())
            elif time.time() - still[1] > STALLED_AFTER:
                return
            time.sleep(TICK * 5)
        enough = len(self._good_rounds()) + rounds
        deadline = time.time() + STALLED_AFTER
        while len(self._good_rounds()) < enough and time.time() < deadline:
            self._show()
            time.sleep(TICK)

    def _good_rounds(self) -> list[Round]:
        return [done for done in self.rounds.done if done.ok]

    # ----------------------------------------------------------------------------------------------------- the deeds

    def send(self, send: Send) -> None:
        """A request of the plan."""
        body = json.dumps(send.body())
        self.sent.append(self.stage.send(send.process, send.request_id, body, send.request_id))

    def do(self, fault: Fault) -> None:
        """Something of the plan that is to go wrong."""
        fields = fault.fields
        match fault.kind:
            case "engine restarted" | "engine killed":
                self._restart(fields["hard"])
            case "containers killed":
                self._kill(fields["call"])
            case "abort":
                self._pick(fault, self.stage.running(), self.stage.abort)
            case "redriven":
                self._pick(fault, self.stage.unsuccessful(), self.stage.redrive)
            case "abort, run left alive":
                rule = self.faults.add("RunGlueJob", "leave_running")
                self._when_met(rule, lambda met: self._abort_soon(fault.kind, met))
            case "limit changed":
                self._for_a_while(fault, lambda: self._set_limit(fields["process"], fields["limit"]))
            case "paused":
                self._for_a_while(fault, lambda: self.stage.operations.pause(fields["process"]))
            case "status events lost":
                self._for_a_while(fault, lambda: self.stage.status_events(lost=True))
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
        self._note_rules()
        self._rules.clear()  # the engine forgets them
        began = time.time()
        self.stage.aws.restart(hard=hard)
        self._mark(RESTARTED[hard], began=began)

    def _kill(self, call: str) -> None:
        """In the middle of a call whose effect stands, so that the caller never learns of it; or wherever they are."""
        if call:
            rule = self.faults.add(call, "late", seconds=LATE)
            self._when_met(rule, lambda _met: self._kill_now(call), otherwise=lambda: self._kill_now(""))
        else:
            self._kill_now("")

    def _kill_now(self, call: str) -> None:
        killed = self.stage.kill_containers()
        if killed:
            self._mark("containers killed", f"{killed} of them, in {call or 'no call'}")

    def _pick(self, fault: Fault, names: list[str], deed: Callable[[str], bool]) -> None:
        if names:
            name = sorted(names)[int(fault.fields["draw"] * len(names))]
            if deed(name):
                self._mark(fault.kind, name, name.rsplit("-", 1)[0])

    def _abort_soon(self, kind: str, met: list[str]) -> None:
        """A moment later, so that there is a run to be left alive."""

        def abort() -> None:
            if self.stage.abort(met[0]):
                self._mark(kind, met[0], met[0].rsplit("-", 1)[0])

        self._at(self._elapsed() + 0.4, abort)

    def _for_a_while(self, fault: Fault, deed: Callable[[], None]) -> None:
        deed()
        fields, began = fault.fields, time.time()
        process = "" if fault.kind == "status events lost" else fields["process"]

        def undo() -> None:
            if fault.kind == "status events lost":
                self.stage.status_events(lost=False)
            elif fault.kind == "paused":
                self.stage.operations.resume(process)
            else:
                self._set_limit(process, self.plan.limits[process])
            self._mark(fault.kind, str(fields.get("limit", "")), process, began)

        self._at(self._elapsed() + fields["seconds"], undo)

    def _set_limit(self, process: str, limit: int) -> None:
        self.stage.operations.set_limit(process, limit)
        # Somebody has to knock: whoever waits is asleep, and a limit that is too low admits nobody (F6).
        self._at(self._elapsed() + KNOCK, lambda: self.stage.wake_for_nothing(process))

    def _send_bad(self, process: str, what: str) -> None:
        request_id = f"bad-{len(self.sent)}"
        body: dict[str, Any] = {"process": process, "request_id": request_id, "arguments": {}}
        group = process
        if what == "unknown process":
            body["process"] = group = "soak-nobody"
        elif what == "another group":
            body["process"] = "soak-b" if process == "soak-a" else "soak-a"
        elif what == "reserved argument":
            body["arguments"] = {"--slotkeeper-execution": "somebody-else"}
        text = "{not JSON" if what == "not JSON" else json.dumps(body)
        self.sent.append(self.stage.send(group, request_id, text, request_id, bad=what))
        self._mark("bad message", what, process)

    def _repeat(self, fault: Fault) -> None:
        process = fault.fields["process"]
        if fault.kind == "woken for nothing":
            if self.stage.wake_for_nothing(process):
                self._mark(fault.kind, "", process)
            return
        sent = [each for each in self.sent if each.process == process and not each.bad]
        if not sent:
            return
        chosen = sent[int(fault.fields["draw"] * len(sent))]
        if fault.kind == "sent again":
            # A caller that is not sure: the same request, as another message.
            self.stage.send(process, chosen.request_id, chosen.body, f"{chosen.request_id}-{time.monotonic_ns()}")
        elif self.stage.has_started(chosen):
            self.stage.redeliver(chosen)
        else:
            return  # SQS delivers no message twice while those before it wait
        self._mark(fault.kind, chosen.request_id, process)

    # ------------------------------------------------------------------------------------------------- bookkeeping

    def _mark(self, kind: str, said: str = "", process: str = "", began: float | None = None) -> None:
        now = time.time()
        self.marks.append(Mark(now if began is None else began, kind, said, process, now))

    def _note_rules(self) -> None:
        """Marks each time that a rule has acted since the last look: one may act again long after the first time."""
        now = time.time()
        for rule, (kind, said, seen) in self._rules.items():
            met = self.faults.met(rule)
            for name in met[seen:]:
                self.marks.append(Mark(self._looked, kind, said, name.rpartition("-")[0], now))
            self._rules[rule] = (kind, said, len(met))
        self._looked = now

    def _when_met(
        self, rule: str, deed: Callable[[list[str]], None], otherwise: Callable[[], None] | None = None
    ) -> None:
        deadline = time.time() + PATIENCE

        def look() -> None:
            met = self.faults.met(rule)
            if met or time.time() > deadline:
                if met:
                    deed(met)
                elif otherwise is not None:
                    otherwise()
                self.faults.remove(rule)
            else:
                self._at(self._elapsed() + TICK, look)

        look()

    def _at(self, elapsed: float, deed: Callable[[], object]) -> None:
        heappush(self._later, (elapsed, next(self._order), deed))

    def _elapsed(self) -> float:
        return time.time() - self.began

    def _show(self, *, everything: bool = False) -> Snapshot:
        """Looks at what costs little, and at all of it when somebody is to see it."""
        now = time.time()
        due = now - self._shown >= self.view.interval
        if not (due or everything):
            return Snapshot(0, 0, 0, 0, 0, {}, 0, 0, "", "")
        self._note_rules()
        slots = self.stage.journal.read()
        snapshot = Snapshot(
            elapsed=self._elapsed(),
            seconds=self.plan.seconds,
            sent=len(self.sent),
            queued=self.stage.queued(),
            running=len(self.stage.running()),
            slots={name: (len(slot.holders), slot.limit, slot.paused) for name, slot in sorted(slots.items())},
            rounds=len(self.rounds.done),
            faults=len(self.marks),
            last=self.marks[-1].kind if self.marks else "",
            phase=self.phase,
        )
        if due:
            self._shown = now
            self.view.show(snapshot)
        return snapshot
