"""The functions where they can do their work: each in a stack of its own, with events that are new to it."""

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

# What each function does most of the time.
USUAL = {
    "starter": "happy",
    "janitor": "round",
    "chatbot": "happy",
    "token_refresher": "schedule",
    "worker": "happy",
    "process_registrar": "create",
}


class Calls:
    """A function in its stack, and usual events for it."""

    def __init__(self, name: str, deployed: DeployedFunction, receiver: ResponseReceiver) -> None:
        self.name = name
        self._deployed = deployed
        self._receiver = receiver
        # A signature counts once, and is made for a second: so each event is some seconds older than the one before.
        self._sent = (time.time() - 2 * number for number in itertools.count())

    @property
    def configuration(self) -> Configuration:
        """As it is deployed; but a token is refreshed as often as somebody asks, since nobody here wants to wait."""
        configuration = self._deployed.configuration
        return replace(configuration, environment=dict(configuration.environment) | {"TOKEN_MIN_REFRESH_SECONDS": "0"})

    def event(self) -> Any:
        """One that it has not had before."""
        setup = EventSetup(self._deployed, self.name, self._receiver, own=True, now=next(self._sent))
        event = setup.prepare(ROOT / "events" / self.name / f"{USUAL[self.name]}.json")
        for record in event.get("Records", []):
            body = json.loads(record["body"]) | {"request_id": uuid4().hex}
            record["body"] = json.dumps(body)
        return event


@contextmanager
def deployed(folder: Path, names: Iterable[str]) -> Iterator[tuple[EmbeddedAws, Mapping[str, Calls]]]:
    """These functions. Raises EngineError, DeploymentError."""
    folder.mkdir()
    with ExitStack() as stack:
        aws = stack.enter_context(EmbeddedAws.start(folder))
        ready = {}
        for name in names:
            made, _, receiver = stack.enter_context(own_stack(aws, name))
            ready[name] = Calls(name, made, receiver)
        yield aws, ready
