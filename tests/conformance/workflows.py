"""State machines of the embedded AWS for the rows of Step Functions."""

from __future__ import annotations

import itertools
import json
from typing import Any

from dev.emulator.aws import EmbeddedAws
from tests.engine.conftest import MachineMaker

PARTS = "stepfunctions/v2"  # LocalStack's folder
WAIT = {"Wait": {"Type": "Wait", "Seconds": 3600, "End": True}}
_numbers = itertools.count(1)


class Workflows:
    """State machines and what their tasks use."""

    def __init__(self, aws: EmbeddedAws) -> None:
        self.client = aws.client
        self.machine = MachineMaker(aws, self.unique)

    def unique(self, stem: str) -> str:
        """A name that no other row uses."""
        return f"{stem}-{next(_numbers)}"

    def end(self, states: dict[str, Any], given: Any = None) -> dict[str, Any]:
        """Run an execution of these states; return its description at its end."""
        return self.machine.end_of(self.machine.start(self.machine(states), given))

    def output(self, states: dict[str, Any], given: Any = None) -> Any:
        """Run an execution of these states; return its output."""
        return json.loads(self.end(states, given)["output"])
