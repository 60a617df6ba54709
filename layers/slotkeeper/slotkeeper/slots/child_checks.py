"""Checks child executions in a run of the janitor: of dead holders, and those that were redriven manually.

A holder whose target is a state machine is judged by one DescribeExecution of its child; no list is needed. The targets
take turns, and a target that Step Functions refuses delays only its own holders. DescribeExecution has a quota of 15
per second (Step Functions guide, "Service quotas"), so a run may end before the last holder. The next run continues, in
another order.

The janitor settles the request of such a holder here, and not with the other requests: the child's own status decides
whether the request has succeeded, and it is known only when the child has closed, or is absent.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from slotkeeper.slots.dead_holders import CheckOutcome, DeadHolders, Held
from slotkeeper.slots.executions import Execution, Workflow
from slotkeeper.slots.glue import GlueRun
from slotkeeper.slots.process import Process
from slotkeeper.slots.request import MAX_WEIGHT, process_of_execution
from slotkeeper.slots.run_report import RunReport, in_turns, is_outage
from slotkeeper.slots.settlement import Settlement, SettleOutcome, Work
from slotkeeper.slots.targets import is_state_machine


@dataclass
class ChildChecks:
    """Checks the children of dead holders, and adopts redriven children. Keeps unfinished lists for the next run."""

    dead: DeadHolders
    workflow: Workflow
    settlement: Settlement
    _unfinished: dict[str, Iterator[str | None]] = field(default_factory=dict, init=False)  # target -> rest of its list

    def check(self, holders: Iterable[Held], report: RunReport, until: float) -> list[Held]:
        """Check these holders until `until` (epoch seconds); return those whose slots were freed."""
        freed: list[Held] = []
        for held in in_turns(holders, lambda each: each.target):
            if self.dead.clock() >= until:
                report.cut_short("The run's time has ended; the next run checks the other child executions")
                break
            try:
                if self._conclude(held, report) is CheckOutcome.FREED:
                    freed.append(held)
            except Exception as error:
                report.could_not_check(
                    "Could not check a child execution; its slot is kept", error, [held.name], held.target
                )
                if is_outage(error):
                    break
        return freed

    def _conclude(self, held: Held, report: RunReport) -> CheckOutcome:
        checked_at = self.dead.clock()
        child = self.dead.children.describe(held.target, held.name, self.workflow.execution_arn(held.name))
        return self.dead.conclude_child(held, child, checked_at, report, lambda: self._settle(held, child, report))

    def settle_caller(self, held: Held, report: RunReport, run: GlueRun | None = None) -> bool:
        """Settle the request of a holder without a child if its caller waits; False if that is not done yet.

        Args:
            run: its newest Glue run, which has ended.
        """
        return not held.holder.task_token or self._settle(held, run, report)

    def _settle(self, held: Held, work: Work | None, report: RunReport) -> bool:
        execution = self.workflow.describe(held.name)  # the list of closed executions has no inputs
        if execution is None or execution.status == "SUCCEEDED":
            return True
        # An execution that was redriven since has no outcome yet.
        if not execution.is_closed:
            return False
        settled = self.settlement.settle(execution, report, work=work, holder=held.holder)
        return settled is not SettleOutcome.CLAIMED

    def adopt_redriven(self, processes: Sequence[Process], report: RunReport, until: float) -> None:
        """Adopt the children of our workflow that were redriven manually and hold no slot, until `until`.

        A closed execution can be redriven for 14 days (Step Functions API Reference, RedriveExecution). The slot of
        such a child was freed when it had closed, so that it runs outside the limit. It is not stopped, because an
        operator wants its work: it is counted as a holder, which keeps other requests out.

        A target that is also used without slots may have hundreds of thousands of running executions, in hundreds of
        pages. So the targets take turns of a page, and the next run continues the lists that this one cannot finish.
        """
        by_name = {process.name: process for process in processes}
        used = [held.target for process in processes for held in process.holders.values()]
        used += [process.target for process in processes]
        targets = list(filter(is_state_machine, used))
        lists, self._unfinished = self._unfinished, {}
        # The unfinished ones first, in their order.
        due = [target for target in dict.fromkeys([*lists, *targets]) if target in targets]
        turns = deque((target, lists.get(target) or self.dead.children.redriven(target)) for target in due)
        while turns:
            if self.dead.clock() >= until:
                self._unfinished = dict(turns)
                return report.cut_short(
                    "The run's time has ended; the next run continues the lists of child executions"
                )
            target, names = turns.popleft()
            try:
                if not self._adopt_page(target, names, by_name, report, until):
                    turns.append((target, names))
            except Exception as error:
                report.failed("Could not list the redriven executions of a state machine", error, target=target)
                if is_outage(error):
                    self._unfinished = dict(turns)
                    return None
        return None

    def _adopt_page(
        self,
        target: str,
        names: Iterator[str | None],
        processes: Mapping[str, Process],
        report: RunReport,
        until: float,
    ) -> bool:
        """Adopt the children of one page, until `until`; True at the end of the list."""
        for name in names:
            if name is None:
                return False
            process = processes.get(process_of_execution(name))
            if process and name not in process.holders:
                with report.guard("Could not adopt a child execution that was redriven", execution=name):
                    self._adopt(process, target, name, report)
            if self.dead.clock() >= until:
                return False
        return True

    def _adopt(self, process: Process, target: str, name: str, report: RunReport) -> None:
        child = self.dead.children.describe(target, name, self.workflow.execution_arn(name))
        if child is None or not child.is_ours or child.is_closed:
            return
        execution = self.workflow.describe(name)
        if execution is not None and not execution.is_closed:
            return  # it may still release the slot of this name
        weight = _weight(execution, process)
        if self.dead.slots.adopt(process.name, name, self.dead.clock(), target, weight, redriven=True):
            report.note("ChildRedriven", "Adopted a child execution that was redriven outside a slot", execution=name)


def _weight(execution: Execution | None, process: Process) -> int:
    try:
        weight = json.loads(execution.input)["weight"] if execution else None
    except (ValueError, RecursionError, KeyError, TypeError):
        weight = None
    return weight if type(weight) is int and 1 <= weight <= MAX_WEIGHT else process.default_weight
