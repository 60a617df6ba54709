"""The page of `slotkeeper audit --html`, and the timeline in it."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from slotkeeper_cli.audit import judge
from slotkeeper_cli.audit.audit_page import audit_page
from slotkeeper_cli.audit.timeline import MAX_BARS, changes, rows, timeline_svg
from slotkeeper_cli.audit.work_history import OperatorAct, WorkHistory
from slotkeeper_cli.unread import UnreadSource
from tests.cli.operator_account import Operator
from tests.cli.pages import Page, read_page
from tests.cli.work_histories import START, attempt, changed, clean, history, name, row, whole

HOSTILE = '<b>"x"</b>&'
TOKEN = "AQCkAAAAKgAAAAMAAAAAAAAAAbMARKERtoken/+=="
ANNA = "arn:aws:sts::123456789012:assumed-role/ops/anna"


def _page(of: WorkHistory) -> Page:
    return read_page(audit_page(of, judge(of), "slots"))


def _acts() -> list[OperatorAct]:
    return [
        OperatorAct(START + 5, "process set-limit", "sample", ANNA, {"before": 1, "after": 2}),
        OperatorAct(START + 6, "process pause", "sample", ANNA),
        OperatorAct(START + 7, "retry breaker open", "", ANNA, {"downstream": HOSTILE}),
        OperatorAct(START + 8, "process resume", "sample", ANNA),
    ]


def test_texts_of_senders_stay_text_and_task_tokens_are_hidden() -> None:
    failed = attempt(HOSTILE, 0, 10, "FAILED", code=HOSTILE, reason=f'{{"task_token": "{TOKEN}", "why": "{HOSTILE}"}}')
    others = [attempt(f"{HOSTILE}2", 11), attempt(f'{{"task_token": "{TOKEN}"}}', 12)]
    page = _page(history([failed, *others], acts=_acts()))
    text = "\n".join(page.texts)
    assert text.count(HOSTILE) >= 6
    assert "MARKER" not in text + str(page.elements)
    assert "123456789012" not in text


def test_the_page_has_the_timeline_figures_failures_changes_requests_checks_and_what_was_not_read() -> None:
    unread = UnreadSource("RequestDeadLetterQueue", "denied", 7)
    made = replace(clean(), acts=_acts(), not_read=[unread])
    page = _page(made)
    text = "\n".join(page.texts)
    headings = ("Process sample", "Figures", "Failures by cause", "Changes by operators", "Checks", "Requests (5)")
    assert all(f"{each}\n" in f"{text}\n" for each in (*headings, "Not read completely: 1"))
    assert "About 7 messages of RequestDeadLetterQueue could not be read: denied" in text
    assert "limit 1 to 2\nassumed-role/ops/anna" in text
    assert "States.TaskFailed\nnot a number\nb\n1\n" in text
    assert "no slot free for 11.9 s, paused for 2.0 s, 3 others waiting when it was sent" in text
    tags = Counter(tag for tag, _ in page.elements)
    assert tags["desc"] == tags["h1"] == 1
    assert {each.get("scope") for tag, each in page.elements if tag == "th"} == {"col", "row"}
    assert {each["tabindex"] for _, each in page.elements if each.get("class") == "wide"} == {"0"}


def test_a_run_whose_writes_are_known_has_its_limits_and_a_rejected_request_its_reason() -> None:
    rejected = row("large", 2, "REJECTED", ended=START + 2.1, code="TooLarge", reason="it is too large")
    text = "\n".join(_page(replace(whole(), rows=[*whole().rows, rejected])).texts)
    assert [each.text for each in changes(whole(), "sample")] == ["limit 2 to 3"]
    assert "TooLarge\nit is too large\nlarge" in text
    assert "\N{MULTIPLICATION SIGN} rejected" in text


def test_a_wait_states_what_kept_the_request_waiting() -> None:
    made = changed(replace(clean(), acts=_acts()), "d", sent=START + 2)
    shown = {each.label: each for each in rows(replace(made, attempts=made.attempts[:4]), "sample")}
    assert shown["d"].why == "no slot free for 9.9 s, paused for 2.0 s, 1 other waiting when it was sent"


def test_a_wait_of_an_execution_without_a_row_is_not_recorded() -> None:
    first, *others = clean().attempts
    made = history([replace(first, row=None), *others])
    assert {each.label: each.wait for each in rows(made, "sample")}[name("a")] is None
    assert "For how long 1 execution waited is not recorded." in timeline_svg(made, "sample")


def test_no_two_holders_overlap_and_no_two_labels_of_changes() -> None:
    acts = [replace(each, at=START + at) for at in (0, 1, 2, 900) for each in _acts()]
    attempts = [attempt(str(number), 40 * number, 30 + 37 * (number % 4)) for number in range(60)]
    svg = timeline_svg(history(attempts, acts=acts), "sample")
    bars = defaultdict(list)
    for x, y, width in re.findall(r'<rect class="tl-ok" x="([\d.]+)%" y="(\d+)" width="([\d.]+)%"', svg):
        bars[y].append((float(x), float(x) + float(width)))
    assert sum(map(len, bars.values())) == 60
    assert all(end <= start + 0.02 for row in bars.values() for (_, end), (start, _) in pairwise(row))
    labels = re.findall(r'class="tl-mark" x="([\d.]+)%" dx="(-?)3"[^>]* y="(\d+)">([^<]+)<', svg)
    pixels = defaultdict(list)
    for x, is_right, y, text in labels:
        begin = 3.4 * float(x) - (7 * len(text) if is_right else 0)
        pixels[y].append((begin, begin + 7 * len(text)))
    assert len(labels) >= 6
    assert "<title>1: succeeded; 2026-09-21T14:14:00Z, 1 min 6 s</title>" in svg
    assert all(end <= start for row in pixels.values() for (_, end), (start, _) in pairwise(sorted(row)))


def test_many_executions_are_drawn_as_means_and_the_page_says_so() -> None:
    attempts = [attempt(str(number), 3 * number, 5, "" if number % 3 else "FAILED") for number in range(MAX_BARS + 600)]
    page = _page(history(attempts))
    tags = Counter(tag for tag, _ in page.elements)
    assert tags["rect"] == 0
    assert tags["tr"] < MAX_BARS + 50
    text = " ".join(page.texts)
    assert "1,000 executions are too many for bars: each column is a mean of" in text
    assert "Requests (400, the newest 400 of 1,000)" in text


def test_the_command_writes_the_page_or_an_error(operator: Operator, tmp_path: Path) -> None:
    ended = operator.run("audit", "--html", str(tmp_path / "audit.html"))
    assert f"The page is in {tmp_path / 'audit.html'}." in ended.stderr
    assert "Process sample" in read_page((tmp_path / "audit.html").read_text()).texts
    assert "cannot write the page" in operator.run("audit", "--html", str(tmp_path / "no" / "audit.html")).stderr
