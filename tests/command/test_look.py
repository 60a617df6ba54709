"""The look of pages: texts of senders, states, the contrast in a browser, the script, and the timeline."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any
from xml.etree import ElementTree

import pytest
from jinja2 import UndefinedError

from slotkeeper.slots.queued import place_of
from slotkeeper_cli.audit import judge
from slotkeeper_cli.audit.audit_page import audit_page
from slotkeeper_cli.look.pages import environment, render
from slotkeeper_cli.look.timeline import (
    MAX_BARS,
    Bar,
    Mark,
    Timeline,
    notes_of,
    spark_svg,
    timeline_of_rows,
    timeline_svg,
)
from slotkeeper_cli.requests import RequestState
from slotkeeper_cli.unread import UnreadSource
from tests.command.contrast import low_contrasts
from tests.command.pages import read_page
from tests.command.work_histories import START, clean, row

HOSTILE = '<img "x">&\x1b'
TOKEN = '{"task_token": "AQCkAAAAKgAAAAMAAAAAAAAAAbMARKERtoken/+=="}'
PARTS = """{% extends "document.html" %}{% block body %}
{% from "parts.html" import chip, command, empty, facts, not_read, row, slots_bar, table, tiles with context %}
{{ tiles([{"label": text, "value": 30, "kind": "bad", "note": text}, {"label": "alarms", "value": 0}]) }}
{{ not_read([{"source": text, "messages": 7, "why": text}]) }}{{ facts([(text, text)]) }}
{{ empty(text, text) }}{{ command(text) }}
<section>{% set columns = ["state", ">number", "slots", "at"] %}{% call table(text, columns) %}
{% for state in states %}
{{ row(columns, [chip(state), 1234 | count, slots_bar(2, 3, [2]), 1790000000 | when], as="bad") }}
{% endfor %}
{{ row(columns, [text, text | cut, text, "2026-09-21T14:13:20Z" | when(exact=True)]) }}
{% endcall %}</section>
<div id="part"><details id="d"><summary>more</summary></details><input type="checkbox" id="c" aria-label="c"/></div>
<p id="long">{{ "a-name-of-many-characters-in-a-row" | cut }}</p>{% endblock %}"""


def _parts(text: str) -> str:
    states = [*RequestState, "holds", "paused", "malformed", "idle"]
    return environment().from_string(PARTS).render(title=text, text=text, states=states)


def test_texts_of_senders_stay_text_and_task_tokens_are_hidden() -> None:
    page = read_page(_parts(HOSTILE + TOKEN))
    assert "".join(page.texts).count('<img "x">') >= 12
    assert "\x1b" not in _parts(HOSTILE)
    assert "MARKER" not in _parts(TOKEN)


def test_a_template_does_not_use_what_it_does_not_receive() -> None:
    with pytest.raises(UndefinedError):
        render("audit.html", title="slots")


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (
            "{{ 45.04 | lasting }} {{ 45 | lasting }} {{ 9000 | lasting }} {{ none | lasting }}",
            "45.0 s 45 s 2 h 30 min ",
        ),
        ("{{ 'too late' | kind }} {{ 'DEAD-LETTERED' | kind }} {{ 'never seen' | kind }}", "warn bad off"),
        ("{{ 1790000000.25 | when }}", '<time datetime="2026-09-21T14:13:20.250000Z">2026-09-21 14:13:20 UTC</time>'),
        ("{{ 'abcdef' | cut(4) }}", '<span class="id" title="abcdef">a<span class="middle">bcd</span>ef</span>'),
    ],
)
def test_a_filter_writes(source: str, text: str) -> None:
    assert environment().from_string(source).render() == text


# --------------------------------------------------------------------------------------------------------- in a browser


def _opened(browser: Any, text: str, width: int = 1280, scheme: str = "light") -> Any:
    context = browser.new_context(
        viewport={"width": width, "height": 800}, color_scheme=scheme, timezone_id="Europe/Berlin"
    )
    page = context.new_page()
    page.set_content(text)
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_contrast_and_no_page_is_wider_than_a_phone(browser: Any, scheme: str) -> None:
    history = replace(clean(), not_read=[UnreadSource("RequestTable", "denied")])
    for text in (_parts("text"), audit_page(history, judge(history), "slots")):
        for width in (1280, 390):
            page = _opened(browser, text, width, scheme)
            assert low_contrasts(page) == []
            assert page.evaluate("document.documentElement.scrollWidth") <= width
    pale = _opened(browser, "<body style='background: #fff'><p style='color: #999'>pale</p>")
    assert [each.partition(" (")[0] for each in low_contrasts(pale)] == ["2.85: pale"]


def test_times_are_relative_and_one_switch_changes_the_named_zone(browser: Any) -> None:
    page = _opened(browser, _parts("text"))
    exact, switch = page.locator("time[data-exact]"), page.locator("[data-zone]")
    assert exact.text_content() == "2026-09-21 16:13:20"
    assert exact.get_attribute("title") == "2026-09-21 16:13:20 CEST"
    assert re.fullmatch(r"(in )?\d+ .*", page.locator("time:not([data-exact])").first.text_content())
    switch.click()
    assert (exact.text_content(), switch.text_content()) == ("2026-09-21 14:13:20", "times in UTC")
    axis = _opened(browser, audit_page(clean(), [], "slots")).locator("svg [data-form]").all_text_contents()
    assert (axis[0], axis[-1]) == ("16:20", "2026-09-21 17:13:20 CEST")


def test_a_cut_id_is_copied_whole_and_what_is_open_stays_over_a_refresh(browser: Any) -> None:
    page = _opened(browser, _parts("text"))
    page.evaluate("getSelection().selectAllChildren(document.querySelector('#long'))")
    assert page.evaluate("getSelection().toString()") == "a-name-of-many-characters-in-a-row"
    page.locator("#d summary").click()
    page.locator("#c").check()
    page.evaluate("part.innerHTML = part.innerHTML.replace('open=\"\"', '')")
    page.wait_for_function("d.open && c.checked && document.activeElement === c")


# ------------------------------------------------------------------------------------------------------------ timeline


def _timeline(number: int, every: float = 40.0) -> Timeline:
    """Requests that waited for 30 s, and held slots for 30 to 141 s. Each third one failed."""
    bars = []
    for each in range(number):
        start = START + every * each
        state = "succeeded" if each % 3 else "failed"
        bars.append(
            Bar(
                str(each), state, 1 + each // 3 % 3, (start - 30, start), (start, start + 30 + 37 * (each % 4)), HOSTILE
            )
        )
    marks = [Mark(START + 300 * each + at, "limit 1 to 2") for each in range(4) for at in (0, 1, 2)]
    limits = [(0.0, 2), (START + 300, None), (START + 600, 5)]
    return Timeline(HOSTILE, START - 60, START + every * number + 200, bars, limits, [(START, START + 60)], marks)


def _boxes(svg: str, kinds: str) -> list[tuple[float, float, float, float]]:
    """Left, right, top and bottom of each bar."""
    form = r'<rect class="(?:{})" x="([\d.]+)%" y="(\d+)" width="([\d.]+)%" height="(\d+)"'
    found = (map(float, each) for each in re.findall(form.format(kinds), svg))
    return [(x, x + width, y, y + height) for x, y, width, height in found]


def test_a_bar_names_its_key_first_and_as_much_as_fits() -> None:
    spans = [(START, START + length) for length in (400, 140, 70, 30, 1)]
    bars = [Bar("a-long-request-id", "succeeded", 1, None, each, key="customer-1") for each in spans]
    svg = timeline_svg(Timeline("p", START, START + 1000, bars, []))
    texts = ["…omer-1", "customer-1", "customer-1 a-long-request-id"]
    assert re.findall(r'class="wide">([^<]*)', svg) == texts


def test_no_two_bars_overlap_and_no_two_labels_of_changes() -> None:
    svg = timeline_svg(_timeline(60))
    for kinds in ("ok|bad", "wait"):
        boxes = _boxes(svg, kinds)
        assert len(boxes) == 60
        for a, b in combinations(boxes, 2):
            assert a[1] <= b[0] + 0.02 or b[1] <= a[0] + 0.02 or a[3] <= b[2] or b[3] <= a[2]
    assert {bottom - top for _, _, top, bottom in _boxes(svg, "ok")} == {16, 35, 54}, "not as high as their weights"
    labels = re.findall(r'<text x="([\d.]+)%" y="(\d+)" class="over wide" dx="(-?)4"', svg)
    pixels = defaultdict(list)
    for x, y, is_right in labels:
        begin = 9.6 * float(x) - (80 if is_right else 0)
        pixels[y].append((begin, begin + 80))
    assert len(labels) >= 8
    assert all(end <= start for some in pixels.values() for (_, end), (start, _) in pairwise(sorted(some)))


def test_a_picture_of_its_own_is_xml_with_a_title_and_times_in_a_named_zone() -> None:
    root = ElementTree.fromstring(timeline_svg(_timeline(5), file=True))  # noqa: S314
    texts = [each.text or "" for each in root.iter()]
    assert root.get("role") == "img"
    assert root.get("viewBox") == f"0 0 960 {root.get('height')}"
    assert any(text.startswith("From 2026-09-21T14:12:20Z to ") and "2 failed" in text for text in texts)
    assert "2026-09-21 14:12:20 UTC" in texts
    assert "Where its line is missing, the limit is not known." in texts


def test_many_requests_are_an_area_that_keeps_its_highest_value() -> None:
    many = _timeline(MAX_BARS + 1599, every=3.0)
    short = Bar("short", "succeeded", 500, held=(START + 3000.5, START + 3000.6))
    many = replace(many, bars=[*many.bars, short])
    svg = timeline_svg(many)
    assert svg.count("<title>") == 1 + len(many.marks)
    assert "2,000 executions are too many for bars of their own." in timeline_svg(many, file=True)
    (drawn,) = re.findall(r'<path class="use" d="([^"]*)"', svg)
    assert min(float(y) for y in re.findall(r"V([\d.]+)H", drawn)) == 0
    assert len(drawn) < 40_000


def test_rows_alone_are_a_timeline() -> None:
    rows = [
        row("a", 0, "SUCCEEDED", started=START + 2, ended=START + 9),
        replace(row("b", 1, "STARTED", started=START + 3, weight=2), placed=place_of(1, START, "1", "acme")),
        row("c", 2),
        row("d", 3, "CANCELLED", ended=START + 8),
        row("e", 4, "RETURNED", started=START + 5, ended=START + 6),
        row("f", 5, "FAILED", ended=START + 7),
        row("old", -90, "SUCCEEDED", started=START - 80, ended=START - 70),
    ]
    made = timeline_of_rows("sample", rows, START - 60, START + 20, 3)
    held = {each.label: (each.state, each.held[1] - START) for each in made.bars if each.held}
    assert held == {"a": ("succeeded", 9), "b": ("running", 20)}
    assert [(at - START, value) for at, value in made.in_use] == [(2, 1), (3, 3), (9, 2), (20, 0)]
    assert {each.label: wait[1] - START for each, wait in made.waiting} == {"a": 2, "b": 3, "c": 20, "d": 8, "e": 6}
    assert "When 1 request started is not recorded." in notes_of(made)
    assert "limit now 3" in timeline_svg(made)
    assert [each.key for each in made.bars if each.key] == ["acme"]
    assert timeline_svg(made).count("; key acme") == 2  # of its wait, and of its work
    idle = timeline_svg(timeline_of_rows("sample", [], START, START + 20, None))
    assert re.findall(r'<path class="use" d="([^"]*)"', idle) == ["M0.0,100V100.0H1000.0V100Z"]
    assert "limit not known" in idle
    spark = spark_svg(made.in_use, made.since, made.until, HOSTILE, limit=3)
    assert ElementTree.fromstring(spark)[0].text == '<img "x">&\\u001b'  # noqa: S314
