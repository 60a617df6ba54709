"""The questions of commands and their answers: without an answer, or an audit line, nothing is written."""

from __future__ import annotations

import shlex

import pytest

from slotkeeper.chatbot.token import ITEM_NAME
from slotkeeper.retry.downstream.downstreams import DownstreamTable
from slotkeeper.retry.downstream.health import Breaker, Health, State
from slotkeeper.retry.message import Message
from tests.command.account_contents import NOW, retry_work, send_dead_letter
from tests.command.operator_account import Operator, StubbedCalls
from tests.command.terminal import terminal

REMOVE = ("process", "remove", "sample")


@pytest.mark.usefixtures("operator")
@pytest.mark.parametrize(
    ("answer", "exit_code", "says"),
    [
        ("y\n", 0, "is removed"),
        ("n\n", 3, "Nothing was changed."),
        ("\n", 3, "Nothing was changed."),
        ("\x03", 130, "Interrupted."),
        ("\x04", 130, "Interrupted."),
    ],
    ids=["yes", "no", "enter", "ctrl-c", "ctrl-d"],
)
def test_an_answer_on_the_terminal(answer: str, exit_code: int, says: str) -> None:
    with terminal(*REMOVE) as shown:
        shown.shows("[y/N]:")
        shown.type(answer)
        assert shown.ends(pressing="\x04" if answer == "\x04" else "") == exit_code
        assert says in shown.text()


@pytest.fixture
def furnished(operator: Operator) -> Operator:
    """A holder, requests in several states, dead letters, a token, a retry that waits, and a breaker that is open."""
    operator.hold("h")
    operator.wait("q")
    send_dead_letter(operator, '{"process": "sample"}')
    operator.leave(operator.wait("c"), "CANCELLED", "Cancelled", "so it is")
    operator.leave(operator.wait("f"), "REJECTED", "NameTaken", "so it is")
    item = {
        "token_name": {"S": ITEM_NAME},
        "access_token": {"S": "t"},
        "generation": {"N": "7"},
        "stored_at": {"N": "1"},
    }
    operator.dynamodb.put_item(TableName=operator.outputs["TokenTableName"], Item=item)
    retry_work(operator, Message("w", {}), NOW, NOW)
    opened = Health(Breaker(state=State.OPEN, since=NOW, probe_at=NOW))
    DownstreamTable(operator.dynamodb, operator.outputs["DownstreamTableName"]).change(
        "default", lambda _: (opened, None)
    )
    return operator


CONFIRMED = {
    "process remove sample": "Remove process sample?",
    "request cancel q": "Cancel 1 queued request (q),",
    "request cancel --process sample --all": "Cancel 1 queued request of sample (q),",
    "failed redrive c": "Queue 1 cancelled request (c) again, each as its next attempt?",
    "failed discard f": "Discard 1 rejected request (f) with their contents, so that they can never",
    "process set-limit sample 0": "Set the limit of sample from 1 to 0? Nothing starts then: 1 request waits.",
    "process set-key-limit sample 0": "Set the limit of each key of sample from none to 0? Nothing of it starts then:",
    "process set-rate sample 2/hour": "Set the rate of sample from any to 2/hour? 1 request waits, and",
    "process pause sample": "Pause sample? Nothing starts then until slotkeeper process resume: 1 request waits; 1",
    "process pause --all": "Pause sample? Nothing starts",
    "request cancel h --stop": "Stop",
    "holder release h --force": "Release the slot",
    "dlq redrive request --all": "Send the messages (about 1) of RequestDeadLetterQueue again?",
    "dlq discard request --code InvalidRequest": "Delete the messages of code InvalidRequest (about 1) of",
    "retry cancel w": "Cancel",
    "retry breaker open --why x": "Open",
    "retry breaker close --why x": "Close",
    "retry limit 2 --downstream new": "No downstream 'new' has been called",
    "token invalidate": "Remove the token of generation 7?",
}
UNCONFIRMED = (
    "process add new --limit 1 --target sample-job",
    "process resume sample",
    "process set-limit sample 2",
    "process set-key-limit sample 2 --key acme",
    "process set-rate sample none",
    "request submit --process sample",
    "retry limit 2",
)


@pytest.mark.parametrize(("command", "question"), CONFIRMED.items(), ids=CONFIRMED)
def test_without_a_terminal_a_question_is_refused(furnished: Operator, command: str, question: str) -> None:
    before = furnished.contents()

    ended = furnished.run(*shlex.split(command))

    assert (ended.exit_code, ended.stdout) == (6, "")
    assert question in ended.stderr
    assert "give --yes to confirm" in ended.stderr
    assert (furnished.contents(), furnished.audited()) == (before, [])


def test_a_change_that_stops_nothing_asks_nothing(operator: Operator) -> None:
    operator.processes.set_limit("sample", 6)
    name = operator.wait("q", weight=5)
    heavier = "Set the limit of sample from 6 to 4? 1 queued request is heavier than that: blocked until it is raised."
    assert heavier in operator.asks("process", "set-limit", "sample", "4")
    assert operator.run("process", "set-limit", "sample", "5").exit_code == 0
    assert "each key of sample from none to 4? 1 queued" in operator.asks("process", "set-key-limit", "sample", "4")
    assert operator.run("process", "set-limit", "sample", "4", "--yes").exit_code == 0
    assert operator.run("process", "set-limit", "sample", "3").exit_code == 0  # it is blocked already
    operator.leave(name, "CANCELLED", "Cancelled", "so it is")
    rates = ("set-rate sample 2/hour", "pause sample", "set-rate sample 1/hour", "resume sample")
    for command in ("set-key-limit sample 4", *rates):
        assert operator.run("process", *shlex.split(command)).exit_code == 0, command


def test_a_question_names_a_queue_that_it_could_not_read(operator: Operator) -> None:
    with StubbedCalls("dynamodb", {"Query": lambda _: {"Error": {"Code": "AccessDeniedException", "Message": "no"}}}):
        asked = operator.asks("process", "pause", "sample")
    assert "how many requests wait is not known (Query failed with AccessDeniedException: no" in asked


@pytest.mark.parametrize("command", [*(f"{command} --yes" for command in CONFIRMED), *UNCONFIRMED])
def test_nothing_is_changed_without_an_audit_line(furnished: Operator, command: str) -> None:
    before = furnished.contents()
    del furnished.aws.log_groups[furnished.outputs["AuditLogGroupName"]]

    ended = furnished.run(*shlex.split(command))

    assert ended.exit_code == 3
    assert "audit" in ended.stderr
    assert furnished.contents() == before
