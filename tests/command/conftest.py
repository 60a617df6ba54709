"""The operator command over an account in the process."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from slotkeeper_cli import dead_letters, stack_connection
from slotkeeper_cli.commands import holder
from tests.command.operator_account import NOW, Operator, command_client
from tests.command.situations import set_clock
from tests.module_time import replace_time
from tests.simulation.account.account import AwsAccount


@pytest.fixture(autouse=True)
def _no_real_account(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        "COLUMNS": "200",
    }.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_ENDPOINT_URL", "AWS_PROFILE", "SLOTKEEPER_STACK", "SLOTKEEPER_LOCAL", "SLOTKEEPER_LOCAL_FILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def operator(monkeypatch: pytest.MonkeyPatch) -> Iterator[Operator]:
    replace_time(monkeypatch, holder, sleep=lambda _: None)
    monkeypatch.setattr(dead_letters, "LONG_POLL_SECONDS", 0)
    # All tests share the clients, which would take a token of each test's budget.
    monkeypatch.setattr(stack_connection, "BUDGETS", {})
    session = SimpleNamespace(client=lambda service, **_: command_client(service))
    monkeypatch.setattr(stack_connection.boto3, "Session", lambda **_: session)
    yield Operator(AwsAccount().use())
    AwsAccount.current = None


@pytest.fixture
def a_minute_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the commands is a minute after the requests of these tests were sent."""
    set_clock(monkeypatch, NOW + 60)
