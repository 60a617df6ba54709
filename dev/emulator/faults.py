"""Faults for tests of the deployed workflow: lose an answer, refuse a call, stop an execution, hold a call.

They act inside an engine that was started with `faults=True`. A rule with a state's name applies to the service calls
of that task. A rule with the name of an operation of Step Functions, DynamoDB, SQS, Glue, EventBridge or SNS applies to
every such API call.
"""

import json
import os
import uuid
from pathlib import Path
from typing import Any, Literal

Action = Literal[
    "lose_answer", "refuse", "conflict", "abort_before", "abort_after", "delay", "late", "hold", "leave_running"
]


class Faults:
    """The rules of one engine.

    - lose_answer: the call takes effect, and the task gets `error` (of a `.sync` job: once the job has started).
    - refuse: the task gets `error`, and the call is not made.
    - conflict: DynamoDB refuses a write, as while a transaction writes its item; of a transaction it is the last item.
    - abort_before, abort_after: the execution is stopped, as by StopExecution, before or after the call.
    - delay: the call is made after `seconds`. late: it is made immediately, and answered after `seconds`.
    - hold: the call is made when the rule is removed.
    - leave_running: a later stop of the execution does not stop its Glue run (AWS: the attempt is best effort).

    At an API call, lose_answer is an InternalFailure (500), and abort_before and leave_running have no effect. A rule
    for StartExecution alone can name an execution and use abort_after.
    """

    def __init__(self, state_dir: Path) -> None:
        self._file = state_dir / "faults.json"
        self._fired = state_dir / "faults.json.fired"

    def add(
        self,
        state: str,
        action: Action,
        *,
        execution: str = "*",
        error: str = "States.TaskFailed",
        seconds: float = 0.0,
        times: int = 1,
    ) -> str:
        """Add a rule and return its id. `execution` is a name or `*`; `times` 0 means every time."""
        rule_id = uuid.uuid4().hex[:12]
        rule = {"id": rule_id, "execution": execution, "state": state, "action": action}
        self._write([*self._read(), rule | {"error": error, "seconds": seconds, "times": times}])
        return rule_id

    def remove(self, rule_id: str) -> None:
        """Remove a rule. A call that it holds continues."""
        self._write([rule for rule in self._read() if rule["id"] != rule_id])

    def clear(self) -> None:
        """Remove all rules. Calls that they hold continue."""
        self._write([])

    def fired(self, rule_id: str) -> int:
        """How often the rule has acted; a hold counts when it begins."""
        return len(self.met(rule_id))

    def met(self, rule_id: str) -> list[str]:
        """The names of the executions that the rule has acted on; empty for an API call without one. See `fired`."""
        lines = self._fired.read_text().splitlines() if self._fired.exists() else []
        return [line.partition(" ")[2] for line in lines if line.startswith(f"{rule_id} ")]

    def _read(self) -> list[dict[str, Any]]:
        rules: list[dict[str, Any]] = json.loads(self._file.read_text()) if self._file.exists() else []
        return rules

    def _write(self, rules: list[dict[str, Any]]) -> None:
        temporary = self._file.with_suffix(".new")
        temporary.write_text(json.dumps(rules, indent=2))
        os.replace(temporary, self._file)  # the engine never reads half a file
