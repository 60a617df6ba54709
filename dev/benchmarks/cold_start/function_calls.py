"""The functions, each in its own stack, and events for them."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from dev.emulator.aws import EmbeddedAws
from dev.emulator.environment import ROOT
from dev.tools.invoke.event_setup import EventSetup
from dev.tools.invoke.function_stack import DeployedFunction
from dev.tools.invoke.invoke_command import own_stack
from dev.tools.invoke.lambda_runtime import Configuration
from dev.tools.invoke.response_receiver import ResponseReceiver

# The most frequent event of each function.
USUAL = {
    "starter": "happy",
    "janitor": "scheduled_run",
    "chatbot": "happy",
    "token_refresher": "schedule",
    "worker": "redelivery",  # of any work
    "process_registrar": "create",
    "retry_report": "scheduled",
}


class Calls:
    """A function in its stack, with its events."""

    def __init__(self, name: str, deployed: DeployedFunction, receiver: ResponseReceiver) -> None:
        self.name = name
        self._deployed = deployed
        self._receiver = receiver
        # A signature has a resolution of a second and is accepted once, so each event is older than the one before.
        self._sent = (time.time() - 2 * number for number in itertools.count())

    @property
    def configuration(self) -> Configuration:
        """As deployed, except that a token is refreshed without a minimum interval."""
        configuration = self._deployed.configuration
        return replace(configuration, environment=dict(configuration.environment) | {"TOKEN_MIN_REFRESH_SECONDS": "0"})

    def event(self) -> Any:
        """A new event: its ids differ from all earlier ones."""
        setup = EventSetup(self._deployed, self.name, self._receiver, own=True, now=next(self._sent))
        event = setup.prepare(ROOT / "events" / self.name / f"{USUAL[self.name]}.json")
        for record in event.get("Records", []):
            body = json.loads(record["body"]) | {"request_id": uuid4().hex}
            record["body"] = json.dumps(body)
        return event


@contextmanager
def deployed(folder: Path, names: Iterable[str]) -> Iterator[tuple[EmbeddedAws, Mapping[str, Calls]]]:
    """Deploy these functions. Raises EngineError, DeploymentError."""
    folder.mkdir()
    with ExitStack() as stack:
        aws = stack.enter_context(EmbeddedAws.start(folder))
        ready = {}
        for name in names:
            made, _, receiver = stack.enter_context(own_stack(aws, name))
            ready[name] = Calls(name, made, receiver)
        yield aws, ready
