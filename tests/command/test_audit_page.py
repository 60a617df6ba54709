"""The page of `slotkeeper audit --html`."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

from slotkeeper_cli.audit import judge
from slotkeeper_cli.audit.audit_page import audit_page, history_timeline
from slotkeeper_cli.audit.work_history import REQUESTS, OperatorAct, WorkHistory
from slotkeeper_cli.look.timeline import MAX_BARS
from slotkeeper_cli.unread import UnreadSource
from tests.command.operator_account import Operator
from tests.command.pages import Page, read_page
from tests.command.work_histories import START, attempt, changed, clean, history, name, row

HOSTILE = '<img "x">&'
TOKEN = "AQCkAAAAKgAAAAMAAAAAAAAAAbMARKERtoken/+=="
ANNA = "arn:aws:sts::123456789012:assumed-role/ops/anna"
ACTS = [
    OperatorAct(START + 5, "process set-limit", "sample", ANNA, {"before": 1, "after": 2}),
    OperatorAct(START + 6, "process pause", "sample", ANNA),
    OperatorAct(START + 7, "retry breaker open", "", ANNA, {"downstream": HOSTILE}),
    OperatorAct(START + 8, "process resume", "sample", ANNA),
]


def _page(of: WorkHistory) -> Page:
    return read_page(audit_page(of, judge(of), "slots"))


def test_texts_of_senders_stay_text_and_task_tokens_and_the_account_are_hidden() -> None:
    failed = attempt(HOSTILE, 0, 10, "FAILED", code=HOSTILE, reason=f'{{"task_token": "{TOKEN}", "why": "{HOSTILE}"}}')
    others = [attempt(f"{HOSTILE}2", 11), attempt(f'{{"task_token": "{TOKEN}"}}', 12)]
    page = _page(history([failed, *others], acts=ACTS))
    text = "\n".join(page.texts)
    assert text.count(HOSTILE) >= 6
    assert "MARKER" not in text + str(page.elements)
    assert "123456789012" not in text


def test_a_number_of_queued_requests_that_was_not_read_is_not_0() -> None:
    page = _page(replace(clean(), not_read=[UnreadSource(REQUESTS, "denied")]))
    assert "Queued\nnot known\n" in "\n".join(page.texts)


def test_the_page_has_the_timeline_figures_failures_changes_requests_checks_and_what_was_not_read() -> None:
    rejected = row("large", 2, "REJECTED", ended=START + 2.1, code="TooLarge", reason="it is too large")
    redriven = replace(rejected, execution=name("again"), request_id="again", state="REDRIVEN", ended=START + 2.2)
    made = replace(clean(), rows=[*clean().rows, rejected, redriven], acts=ACTS)
    page = _page(replace(made, not_read=[UnreadSource("RequestDeadLetterQueue", "denied", 7)]))
    text = "\n".join(page.texts)
    headings = ("Guarantees", "Process sample", "Figures", "Failures by cause", "Changes by operators", "Requests (7)")
    assert all(f"{each}\n" in f"{text}\n" for each in (*headings, "Not read completely: 1"))
    assert "About 7 messages of\nRequestDeadLetterQueue\n: denied" in text
    assert "limit 1 to 2\nassumed-role/ops/anna" in text
    assert "States.TaskFailed\nnot a number\nb\n1\n" in text
    assert "TooLarge\nit is too large\nlarge\n,\nagain\n2\n" in text
    assert "no slot free for 12.3 s, paused for 2.0 s, 3 others waiting when it was sent" in text
    tags = Counter(tag for tag, _ in page.elements)
    assert tags["desc"] == tags["h1"] == 1
    assert {each.get("scope") for tag, each in page.elements if tag == "th"} == {"col", "row"}
    # Some browsers forget what a table is, if the style makes blocks of its rows.
    roles = {(tag, each.get("role")) for tag, each in page.elements if tag in ("table", "tr", "th", "td")}
    assert roles == {("table", "table"), ("tr", "row"), ("th", "columnheader"), ("th", "rowheader"), ("td", "cell")}


def test_a_wait_states_what_kept_the_request_waiting_if_it_is_recorded() -> None:
    made = changed(replace(clean(), acts=ACTS), "d", sent=START + 2)
    first, *others = made.attempts[:4]
    timeline = history_timeline(replace(made, attempts=[replace(first, row=None), *others]), "sample")
    shown = {each.label: each for each in timeline.bars}
    assert shown["d"].why == "no slot free for 10.1 s, paused for 2.0 s, 1 other waiting when it was sent"
    assert "For how long 1 execution waited is not recorded." not in timeline.notes
    unknown = history_timeline(history([replace(first, row=None), *others]), "sample")
    assert {each.label: each.wait for each in unknown.bars}[name("a")] is None
    assert "For how long 1 execution waited is not recorded." in unknown.notes


def test_of_many_executions_the_page_has_the_newest() -> None:
    attempts = [attempt(str(number), 3 * number, 5, "" if number % 3 else "FAILED") for number in range(MAX_BARS + 600)]
    page = _page(history(attempts))
    assert Counter(tag for tag, _ in page.elements)["tr"] < MAX_BARS + 50
    text = " ".join(page.texts)
    assert "1,000 executions are too many for bars of their own." in text
    assert "Requests (400, the newest 400 of 1,000)" in text


def test_the_command_writes_the_page_or_an_error(operator: Operator, tmp_path: Path) -> None:
    ended = operator.run("audit", "--html", str(tmp_path / "audit.html"))
    assert f"The page is in {tmp_path / 'audit.html'}." in ended.stderr
    assert "Process sample" in read_page((tmp_path / "audit.html").read_text()).texts
    assert "cannot write the page" in operator.run("audit", "--html", str(tmp_path / "no" / "audit.html")).stderr
