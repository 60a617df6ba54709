"""`slotkeeper web` in a browser, that every operator can read and use its pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dev.emulator import npm_packages
from dev.emulator.environment import ROOT
from tests.command.console_account import LONG, MARKUP, served
from tests.command.contrast import low_contrasts
from tests.waiting import NEVER

AXE, AXE_DIGEST = (
    "axe-core@4.14.1",
    "sha512-FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ==",
)
PAGES = (
    "./",
    "process/nightly-load",
    "process/customers",
    "process/odd",
    "history/nightly-load?hours=1",
    f"request?id={LONG}&process=killed-execution",
    "request?id=order-03",
    "request?id=unknown",
    "failures",
    "dead-letters",
    "alarms",
    "doctor",
    "retries",
    "token",
    "no-such-page",
)
_READ = "document.querySelector('h1') && !document.body.innerText.includes('Reading ...')"


class Reader:
    """Opens pages of a console, as an operator does."""

    def __init__(self, browser: Any, address: str) -> None:
        self._browser, self._below = browser, address.partition("?")[0]
        self.page = self.tab()
        self.page.goto(address)
        self.page.get_by_role("heading", level=1).wait_for()

    def tab(self, **options: Any) -> Any:
        """A browser's window. The first one has the cookie, which the others receive."""
        cookies = self.page.context.cookies() if hasattr(self, "page") else []
        context = self._browser.new_context(base_url=self._below, **options)
        context.add_cookies(cookies)
        page = context.new_page()
        page.set_default_timeout(NEVER * 1000)
        return page

    def open(self, address: str) -> Any:
        """Open a page, and wait until all of it is read."""
        return opened(self.page, address)


def opened(page: Any, address: str) -> Any:
    page.goto(address)
    page.wait_for_function(_READ)
    return page


@pytest.fixture(scope="module")
def troubled(browser: Any) -> Iterator[Reader]:
    with served("troubled", "--write") as address:
        yield Reader(browser, address)


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_each_page_can_be_read_and_used_by_every_operator(troubled: Reader, scheme: str, width: int) -> None:
    axe = npm_packages.fetch(AXE, AXE_DIGEST, ROOT / "build" / "axe") / "axe.min.js"
    page = troubled.tab(viewport={"width": width, "height": 900}, color_scheme=scheme)
    found = []
    for address in PAGES:
        opened(page, address)
        page.add_script_tag(content=axe.read_text())
        for each in page.evaluate("axe.run()")["violations"]:
            if each["impact"] in ("serious", "critical"):
                found.append(f"{address}: {each['id']}: {each['nodes'][0]['html']}")
        found += [f"{address}: contrast {each}" for each in low_contrasts(page)]
        if page.evaluate("document.documentElement.scrollWidth") > width:
            found.append(f"{address}: scrolls")
    assert found == []


def test_a_dialog_can_be_read_and_used_by_every_operator(troubled: Reader) -> None:
    axe = npm_packages.fetch(AXE, AXE_DIGEST, ROOT / "build" / "axe") / "axe.min.js"
    for scheme in ("light", "dark"):
        page = opened(troubled.tab(viewport={"width": 390, "height": 900}, color_scheme=scheme), "process/nightly-load")
        page.get_by_role("button", name="Pause").click()
        dialog = page.get_by_role("dialog", name="Pause")
        dialog.get_by_role("button", name="Run").click()
        dialog.get_by_text("Pause nightly-load? Nothing starts then until slotkeeper process resume").wait_for()
        page.wait_for_function("document.getAnimations().length === 0")  # it fades in
        page.add_script_tag(content=axe.read_text())
        violations = page.evaluate("axe.run(document.querySelector('[role=dialog]'))")["violations"]
        assert [each["id"] for each in violations if each["impact"] in ("serious", "critical")] == []
        page.evaluate("document.querySelector('.nicegui-layout').style.visibility = 'hidden'")  # it is dimmed
        assert low_contrasts(page) == []


def test_a_change_shows_what_changes_its_command_and_its_outcome_then_the_page_shows_it(troubled: Reader) -> None:
    page = troubled.open("process/rated")
    page.get_by_label("Limit").fill("0")
    page.get_by_role("button", name="Set limit").click()
    dialog = page.get_by_role("dialog")
    assert "process set-limit rated 0" in dialog.locator("code").inner_text()
    dialog.get_by_role("button", name="Run").click()
    dialog.get_by_text("Set the limit of rated from 10 to 0? Nothing starts then: 4 requests wait.").wait_for()
    dialog.get_by_role("button", name="Yes, set limit").click()
    dialog.get_by_text("rated: 10 -> 0 slots.").wait_for()
    dialog.get_by_role("button", name="Close").click()
    page.get_by_text("no slots", exact=True).wait_for()
    page.wait_for_function("document.activeElement.textContent === 'Set limit'")


def test_requests_that_are_selected_stay_so_over_refreshes_and_are_cancelled_after_the_question(
    troubled: Reader,
) -> None:
    page = troubled.open("process/no-slots")
    page.get_by_role("button", name="Select all on this page").click()
    for number in (0, 2, 4, 5, 6, 7):
        page.get_by_label(f"Select stopped-0{number}").uncheck()
    before = page.locator(".read time").last.get_attribute("datetime")
    page.wait_for_function(f"[...document.querySelectorAll('.read time')].some(each => each.dateTime > '{before}')")
    page.get_by_role("button", name="Cancel the selected").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Run").click()
    dialog.get_by_text("Cancel 2 queued requests (stopped-01, stopped-03)").wait_for()
    dialog.get_by_role("button", name="Yes, cancel requests").click()
    dialog.get_by_text("2 requests cancelled, 0 left.").wait_for()
    dialog.get_by_role("button", name="Close").click()
    page.get_by_role("heading", name="Queue: 6").wait_for()


def test_the_server_runs_only_what_it_has_put_into_the_page(troubled: Reader) -> None:
    page = troubled.open("process/nightly-load")
    page.evaluate(
        """() => { const button = document.querySelector('[data-run]').cloneNode()
        button.dataset.run = 'process pause nightly-load'
        document.querySelector('.part section').append(button)
        button.click() }"""
    )
    page.get_by_role("dialog").get_by_text("The page does not offer this any more").wait_for()
    assert page.get_by_role("dialog").get_by_role("button").all_inner_texts() == ["Close"]


def test_a_request_of_another_page_cannot_be_cancelled_from_here(troubled: Reader) -> None:
    page = troubled.open("process/nightly-load")
    page.evaluate("document.querySelector('[name=execution]').value = 'of another page'")
    page.get_by_label("Select waiting-07").check()
    page.get_by_role("button", name="Cancel the selected").click()
    page.get_by_role("dialog").get_by_text("No queued request is selected. Nothing was changed.").wait_for()


def test_a_sender_s_markup_stays_text(troubled: Reader) -> None:
    for address in ("process/killed-execution", "process/customers", f"request?id={MARKUP}"):
        page = troubled.open(address)
        assert page.locator("main").get_by_text(MARKUP).count()
        assert page.locator("img").count() == 0
        assert page.title() != "run"


@pytest.mark.parametrize(
    ("process", "command"),
    [
        ("removed", "slotkeeper process add removed --limit 1 --target JOB_OR_ARN"),
        ("odd", "slotkeeper process repair odd"),
        ("no-slots", "slotkeeper process set-limit no-slots 1"),
    ],
)
def test_the_page_of_a_process_begins_with_what_needs_attention(troubled: Reader, process: str, command: str) -> None:
    page = troubled.open(f"process/{process}")
    assert page.locator("section").first.get_by_role("heading").inner_text() == "Needs attention"
    assert page.locator("section").first.get_by_text(command, exact=True).count()


def test_an_address_of_no_page_has_the_frame(troubled: Reader) -> None:
    answer = troubled.page.goto("no-such-page")
    assert answer.status == 404
    assert troubled.page.get_by_role("navigation", name="Pages").count() == 1
    assert troubled.page.get_by_role("heading", level=1).inner_text() == "There is no such page"


def test_a_page_is_used_by_keyboard_from_its_first_link(troubled: Reader) -> None:
    page = troubled.open("failures")
    for role in ("banner", "main", "heading"):
        assert page.get_by_role(role, **({"level": 1} if role == "heading" else {})).count() == 1, role
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.name") == "process"  # the first filter


def test_filters_are_in_the_address(troubled: Reader) -> None:
    page = troubled.open("failures")
    page.get_by_label("Process").select_option("always-fails")
    page.get_by_label("Part of the reason").fill("bucket")
    page.get_by_role("button", name="Filter").click()
    page.wait_for_url("**/failures?process=always-fails&code=&period=30d&q=bucket")
    page.get_by_text("1 failure of 1 cause").wait_for()
    assert page.get_by_label("Process").input_value() == "always-fails"


def test_an_empty_stack_teaches_what_to_do_first(browser: Any) -> None:
    with served("empty") as address:
        reader = Reader(browser, address)
        page = reader.open("./")
        assert "slotkeeper process add" in page.get_by_text("There are no processes yet.").locator("..").inner_text()
        assert page.get_by_text("read-only").count() == 1
        assert page.get_by_role("button", name="Run").count() == 0
