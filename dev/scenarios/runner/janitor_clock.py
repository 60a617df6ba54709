"""Runs the janitor every few seconds, in place of its schedule."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass
from typing import Any, Self

from dev.emulator.aws import EmbeddedAws
from dev.emulator.local_clients import local_client


@dataclass(frozen=True)
class JanitorRun:
    """`ok`: the run completed and reported no error."""

    started: float
    ended: float
    ok: bool


class JanitorClock:
    """Invokes the janitor, except while `paused` is set. A context manager.

    Args:
        period: seconds between two runs.
    """

    def __init__(self, aws: EmbeddedAws, period: float) -> None:
        self.runs: list[JanitorRun] = []
        self.paused = threading.Event()
        self._name, self._period = aws.outputs["JanitorFunctionName"], period
        # One attempt: an interrupted run does not count.
        self._client: Any = local_client("lambda", aws.endpoint)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True)

    def run(self) -> JanitorRun:
        """Run it now."""
        started, ok = time.time(), False
        try:
            answer = self._client.invoke(FunctionName=self._name, Payload=b"{}")
            counts = json.loads(answer["Payload"].read())
            ok = "FunctionError" not in answer and "JanitorErrors" not in counts
        except Exception as error:  # the engine may end during the call, and botocore has many errors for that
            ok = not error
        return JanitorRun(started, time.time(), ok)

    def _loop(self) -> None:
        while not self._stopped.wait(self._period):
            if not self.paused.is_set():
                self.runs.append(self.run())

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(5)
