"""The workflow's definition, walked by the simulation for each request, up to its Glue run and from there to its end.

JSONata in Python is slow. But the definition does the same for every request, but for a few texts that it only hands
on: the execution's name, the process, a receipt handle. So it is always walked with the same ones, and they are
exchanged for the request's own in what it asks, and back in what it is told. What it does after the same answers the
simulation knows already. What it sends to EventBridge keeps them: nobody reads it.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from dev.benchmarks.scale.account import Account
from tests.simulation.frozen import Moment, Record, freeze, record
from tests.simulation.slots_state import JOB
from tests.simulation.transcript import Answer, Node, Outside, Question
from tests.simulation.workflow import START, run, workflow
from tests.simulation.worlds import BEGINNING

_NAME, _PROCESS, _HANDLE = "p-0", "p", "handle"
_REQUEST = {"process": _PROCESS, "arguments": {}, "request_id": "0", "attempt": 1}
_WAITING = {"M": {"receipt_handle": {"S": _HANDLE}}}
_ENDED = {"Id": "jr_1", "JobName": JOB, "JobRunState": "SUCCEEDED"}
_TIMES = {"started": Answer(Moment(BEGINNING)), "clock": Answer(BEGINNING)}


class Workflow:
    """One execution, of which nothing goes wrong.

    Args:
        name: the execution's.
    """

    def __init__(self, account: Account, name: str) -> None:
        self._account = account
        self.name = name
        self._real = {_NAME: name, _PROCESS: name.rpartition("-")[0]}
        self._node = workflow.begin(_NAME, json.dumps(_REQUEST), 0, START, freeze(_REQUEST))

    def begin(self) -> None:
        """Up to its Glue run, for which it waits."""
        self._go_on()
        if self._node.question is None:
            raise RuntimeError(f"{self.name} ended before its run: {self._node.result}")

    def end_run(self) -> None:
        """Its Glue run has succeeded; from there on to its end."""
        self._node = self._node.after(Answer(freeze(_ENDED)))
        self._go_on()
        status, error = self._node.result
        self._account.meter.count("transitions", _transitions(self._node))
        self._account.close(self.name, status, error)

    def _go_on(self) -> None:
        while (question := self._node.question) is not None and question.operation != "wait_for_end":
            self._node = self._node.after(self._answer(question))

    def _answer(self, question: Question) -> Answer:
        if question.service == "actor":
            return _TIMES.get(question.operation, Answer())
        given = _exchanged(question.parameters, self._real)
        told, error = self._account.call(question.service, question.operation, given)
        item = told.get("Item") if isinstance(told, Record) else None
        if item is not None and "waiting" in item:
            self._real[_HANDLE] = item["waiting"]["M"]["receipt_handle"]["S"]
            told = told.with_fields(Item=item.with_fields(waiting=freeze(_WAITING)))
        return Answer(_exchanged(told, {real: same for same, real in self._real.items()}), error)


@cache
def _transitions(ended: Node) -> int:
    """How many states an execution has entered, those too that only choose: each is on the bill."""
    states: list[str] = []
    name, given, redrives, state, state_input = ended.arguments
    run(Outside(ended.answers), name, given, redrives, state, state_input, states.append)
    return len(states)


def _exchanged(value: Any, texts: dict[str, str]) -> Any:
    """The value, frozen, with these texts for those, as names too."""
    if isinstance(value, str):
        return texts.get(value, value)
    if isinstance(value, Record):
        return record({texts.get(name, name): _exchanged(part, texts) for name, part in value.fields.items()})
    if isinstance(value, tuple):
        return tuple(_exchanged(part, texts) for part in value)
    return value
