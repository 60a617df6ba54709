"""The workflow's definition, walked by the simulation for each request, up to its Glue run and from there to its end.

To evaluate JSONata in Python takes longer than all else here. The definition does the same for every request but for a
few texts that it only hands on: the execution's name, the process, a receipt handle. So it is always walked with the
same ones, and they are exchanged for the request's own in what it asks, and back in what it is told; then an expression
is evaluated once for all. What it sends to EventBridge keeps them: nobody reads it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from greenlet import greenlet

from benchmarks.scale.account import Account
from tests.simulation.frozen import Moment, Record, freeze, record
from tests.simulation.transcript import Answer, Outside, Question
from tests.simulation.workflow import START, run
from tests.simulation.worlds import BEGINNING

_NAME, _PROCESS, _HANDLE = "p-0", "p", "handle"
_REQUEST = {"process": _PROCESS, "arguments": {}, "request_id": "0", "attempt": 1}
_STARTED = Answer(Moment(BEGINNING))
_WAITING = {"M": {"receipt_handle": {"S": _HANDLE}}}


class Workflow:
    """One execution, without anybody's fault.

    Args:
        name: the execution's.
    """

    def __init__(self, account: Account, name: str) -> None:
        self._account = account
        self.name = name
        self._real = {_NAME: name, _PROCESS: name.rpartition("-")[0]}
        self._outside = Outside(())
        self._outside.stands_still = True
        self._code = greenlet(run)

    def begin(self) -> bool:
        """Up to the end of its Glue run, for which it waits; True then, False if it is over."""
        states: Callable[[str], object] = lambda _: self._account.meter.count("transitions")  # noqa: E731
        request = freeze(_REQUEST)
        return self._go_on(
            self._code.switch(self._outside, _NAME, json.dumps(_REQUEST), 0, START, request, states)
        )

    def end_run(self) -> bool:
        """Its Glue run has succeeded; from there on, as `begin`."""
        return self._go_on(self._code.switch(Answer(freeze({"Id": "jr_1", "JobName": "job", "JobRunState": "SUCCEEDED"}))))

    def _go_on(self, asked: Any) -> bool:
        while not self._code.dead:
            if asked.operation == "wait_for_end":
                return True
            asked = self._code.switch(self._answer(asked))
        status, error = asked
        self._account.close(self.name, status, error)
        return False

    def _answer(self, question: Question) -> Answer:
        if question.service == "actor":
            return _STARTED if question.operation == "started" else Answer()
        answer = self._account.call(
            question.service, question.operation, _exchanged(question.parameters, self._real)
        )
        told = answer.value
        waiting = told.get("Item", told).get("waiting") if isinstance(told, Record) else None
        if waiting is not None:
            self._real[_HANDLE] = waiting["M"]["receipt_handle"]["S"]
            told = told.with_fields(Item=told["Item"].with_fields(waiting=freeze(_WAITING)))
        return Answer(_exchanged(told, {real: same for same, real in self._real.items()}), answer.error)


def _exchanged(value: Any, texts: dict[str, str]) -> Any:
    """The value, frozen, with these texts for those, as names too."""
    if isinstance(value, str):
        return texts.get(value, value)
    if isinstance(value, Record):
        return record({texts.get(name, name): _exchanged(part, texts) for name, part in value.fields.items()})
    if isinstance(value, tuple):
        return tuple(_exchanged(part, texts) for part in value)
    return value
