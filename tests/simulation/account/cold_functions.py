"""The functions as cold containers: each is called with one event, and everything that it logs is recorded."""

from __future__ import annotations

import io
import json
import logging
import sys
import threading
import time
import warnings
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partialmethod
from types import CodeType, ModuleType, SimpleNamespace, TracebackType
from typing import Any, Self

import boto3
import pytest
import urllib3

from slotkeeper import observability
from slotkeeper.slots import run_report
from tests.simulation.account.account import AwsAccount
from tests.simulation.account.function_environment import OF_SLOTS, OF_THE_CHATBOT, OF_THE_WORKER, read_again
from tests.simulation.account.items import DOWNSTREAMS
from tests.simulation.account.quick_clients import shared_client
from tests.unit.conftest import CODE, CONTEXT

ENVIRONMENT = {
    **OF_SLOTS,
    **OF_THE_WORKER,
    **OF_THE_CHATBOT,
    "CHAT_API_URL": "http://127.0.0.1:9",
    "DOWNSTREAM_TABLE_NAME": DOWNSTREAMS,
    "WORKER_CONCURRENCY": "25",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
}
RESPONSE_URL = "http://cloudformation/answer"
LARGEST_RESPONSE = 4096


@dataclass(frozen=True)
class Ran:
    """The answer or exception of an invocation, and its output: the logs of all libraries, metrics and warnings."""

    answer: Any
    raised: Exception | None
    logged: str

    def __repr__(self) -> str:
        return f"Ran({self.answer!r}, {self.raised!r}, logged={self.logged[:2000]!r})"


class Functions:
    """Loads functions for every example, with shared clients."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self._compiled: dict[str, CodeType] = {}
        self.code = dict(CODE)  # function -> the folder of its app.py
        self.answered: list[dict[str, Any]] = []
        self._request = urllib3.PoolManager.request

    def __enter__(self) -> Self:
        for name, value in ENVIRONMENT.items():
            self._patch.setenv(name, value)
        for name in ("AWS_ENDPOINT_URL", "AWS_PROFILE", "TOKEN_REFRESHER_FUNCTION"):
            self._patch.delenv(name, raising=False)
        self._patch.setattr(AwsAccount, "current", None)
        self.new_account()
        self._patch.setattr(boto3, "client", lambda service, **_: shared_client(service))
        self._patch.setattr(urllib3.PoolManager, "request", partialmethod(self._put))
        # A simulated clock: a slow machine must not use up an invocation's time. A sleep moves it, and each read by
        # 1 ms, so that code that waits without a sleep ends. Threads of other tests keep the real clock.
        self._now, self._thread = 0.0, threading.get_ident()
        self._real_sleep, self._real_clock = time.sleep, time.monotonic
        self._patch.setattr("time.sleep", self._sleep)
        self._patch.setattr("time.monotonic", self._read_clock)
        read_again()
        self._patch.setattr(run_report, "logger", observability.logger)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in [name for name in sys.modules if name.partition(".")[0] == "work"]:  # of the shipped work
            del sys.modules[name]

    def setenv(self, name: str, value: str) -> None:
        """Set a variable of the environment until the end of the test."""
        self._patch.setenv(name, value)

    def _sleep(self, seconds: float) -> None:
        if threading.get_ident() != self._thread:
            return self._real_sleep(seconds)
        self._now += seconds
        return None

    def _read_clock(self) -> float:
        if threading.get_ident() != self._thread:
            return self._real_clock()
        self._now += 0.001
        return self._now

    @property
    def account(self) -> AwsAccount:
        assert AwsAccount.current
        return AwsAccount.current

    def new_account(self) -> AwsAccount:
        """An account with a Glue job."""
        self.answered.clear()
        account = AwsAccount().use()
        account.make_job("job")
        return account

    def _put(self, pool: urllib3.PoolManager, method: str, url: str, **fields: Any) -> Any:
        """Record an answer to CloudFormation; pass on other requests, which are for the chat API."""
        if url != RESPONSE_URL:
            return self._request(pool, method, url, **fields)
        assert method == "PUT"
        # CloudFormation guide, "Custom resource response objects".
        assert len(fields["body"]) <= LARGEST_RESPONSE
        self.answered.append(json.loads(fields["body"]))
        return SimpleNamespace(status=200)

    def load(self, name: str) -> ModuleType:
        """A function's app.py as a cold container has it."""
        folder = self.code[name]
        if name not in self._compiled:
            self._patch.syspath_prepend(str(folder))
            self._compiled[name] = compile((folder / "app.py").read_text(), str(folder / "app.py"), "exec")
        module = ModuleType(f"{name}_app")
        exec(self._compiled[name], vars(module))
        return module

    def run(self, module: ModuleType, event: dict[str, Any], context: Any = CONTEXT) -> Ran:
        output = io.StringIO()
        everything = logging.StreamHandler(output)
        root = logging.getLogger()
        level, handlers = root.level, root.handlers
        root.handlers = [everything]  # pytest's handlers would format each of some thousand records twice more
        root.setLevel(logging.DEBUG)
        answer, raised = None, None
        try:
            with redirect_stdout(output), warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                try:
                    answer = module.handler(event, context)
                except Exception as error:
                    raised = error
        finally:
            root.handlers = handlers
            root.setLevel(level)
        output.write("".join(str(one.message) for one in warned))
        assert self.account.bus.published is not None  # each is checked
        return Ran(answer, raised, output.getvalue())


def invocation(request_id: str = "1", seconds: float = 28.0) -> Any:
    until = time.monotonic() + seconds
    left = {"get_remaining_time_in_millis": lambda: int((until - time.monotonic()) * 1000)}
    return SimpleNamespace(**vars(CONTEXT) | left | {"aws_request_id": request_id})
