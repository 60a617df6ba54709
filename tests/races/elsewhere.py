"""Instances in a process of their own, which can be killed and frozen as containers are.

    python -m tests.races.elsewhere '<Orders as JSON>'

It says a line when it is ready and does its work at the next line it is told; at a stopping point it says where it is
and goes on at the next line. At last it says what came of it. A line that never comes ends it: its parent is gone.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any, Self

from local.clients import local_client
from local.environment import ROOT
from slotkeeper.chat_api import ChatApi
from slotkeeper.credentials import Credentials
from slotkeeper.token_lock import Timing
from tests.races.freezing import Point
from tests.races.sharing import Instance, Sharing, at_once

SECONDS = 60.0  # for any line of it; it takes one at most, and more only if the machine does


@dataclass(frozen=True)
class Orders:
    dynamodb: str
    api: str
    client_id: str
    client_secret: str
    name: str
    timing: dict[str, float]
    skews: list[float]  # one instance each
    stop: Point


class Elsewhere:
    """The parent's side. A context manager that ends the process, whatever state it is in."""

    def __init__(self, sharing: Sharing, skews: list[float] | None = None, stop: Point = "nowhere") -> None:
        service = sharing.service
        endpoint: str = sharing.dynamodb.meta.endpoint_url
        timing = asdict(sharing.timing)
        credentials = (service.client_id, service.client_secret)
        orders = Orders(endpoint, service.url, *credentials, sharing.name, timing, skews or [0.0], stop)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.races.elsewhere", json.dumps(asdict(orders))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "layers" / "slotkeeper")])},
        )

    def says(self) -> Any:
        """The next line it says."""
        output = self._process.stdout
        assert output is not None
        readable, _, _ = select.select([output], [], [], SECONDS)
        assert readable, f"the process has said nothing for {SECONDS:g} s"
        line = output.readline()
        assert line, "the process has ended without a word"
        return json.loads(line)

    def go_on(self) -> None:
        """Lets it do its work, or leave its stopping point."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOWAIT)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def main() -> None:
    """The process's side."""
    orders = Orders(**json.loads(sys.argv[1]))
    dynamodb = local_client("dynamodb", orders.dynamodb, connections=len(orders.skews))
    instances = [_instance(orders, dynamodb, skew) for skew in orders.skews]
    _say_and_wait("ready")
    works: list[Callable[[], str]] = [instance.get for instance in instances]
    tokens = at_once(works)
    events = [type(event).__name__ for instance in instances for event in instance.events]
    _say_and_wait({"tokens": tokens, "events": events})
    print(json.dumps([instance.ask("hello") for instance in instances]), flush=True)


def _instance(orders: Orders, dynamodb: Any, skew: float) -> Instance:
    api = ChatApi(orders.api, lambda: Credentials(orders.client_id, orders.client_secret))
    stops = {orders.stop}

    def stop_once_at(point: Point) -> None:
        if point in stops:
            stops.remove(point)
            _say_and_wait(point)

    def authenticate(seconds: float) -> str:
        stop_once_at("before the POST")
        token = api.authenticate(seconds)
        stop_once_at("between POST and store")
        return token

    return Instance(dynamodb, orders.name, api, Timing(**orders.timing), skew=skew, authenticate=authenticate)


def _say_and_wait(what: Any) -> None:
    print(json.dumps(what), flush=True)
    if not sys.stdin.readline():
        os._exit(1)


if __name__ == "__main__":
    main()
