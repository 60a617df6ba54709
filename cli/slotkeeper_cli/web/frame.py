"""What every page has: the frame around its parts, which are rendered from templates and refreshed."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from markupsafe import Markup
from nicegui import background_tasks, ui
from starlette.requests import Request

from slotkeeper.next_step import NextStep, next_step
from slotkeeper.printable import printable
from slotkeeper_cli.errors import CommandError, failure_text, is_failure
from slotkeeper_cli.formatting import iso, local_time, seconds
from slotkeeper_cli.look.pages import render, script, style, when
from slotkeeper_cli.requests import hide_tokens
from slotkeeper_cli.target_checks import target_text
from slotkeeper_cli.web.actions import Actions, Fields, Offer, reads
from slotkeeper_cli.web.shared import PageReading, SharedReadings, Snapshot

PAGE_ROWS = 50  # of a long table
# A time of formatting.local_time, or of JSON.
_TIME = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [A-Z]{1,5}\b|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)")
# A click on a button that carries a key sends the key and the fields of its form; one that selects all sends nothing.
_ON_CLICK = """event => {
  const button = event.target.closest('[data-run], [data-pick]')
  if (!button) return
  event.preventDefault()
  if ('pick' in button.dataset) {
    const boxes = [...button.form.querySelectorAll('[type=checkbox]')], wanted = !boxes.every(each => each.checked)
    for (const each of boxes) if (each.checked !== wanted) each.click()
    return
  }
  window.pressed = button.id
  const fields = {}
  if (button.form) for (const [name, value] of new FormData(button.form)) (fields[name] ??= []).push(value)
  emit(button.dataset.run, fields)
}"""


def _address(path: str, query: Mapping[str, object]) -> str:
    given = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


@dataclass
class View:
    """The names that a template may use beyond its data.

    Args:
        writes: whether buttons change something.
        query: the parameters of the page's address.
        whole: a command with the options of this stack, as it is copied.
        offers: the commands that the server has put into one part of the page. No other one of a browser is run.
    """

    writes: bool
    path: str
    query: Mapping[str, str]
    whole: Callable[[str], str]
    offers: dict[str, Offer] = field(default_factory=dict)

    step = staticmethod(next_step)
    target = staticmethod(target_text)

    def process(self, name: str, page: str = "process") -> str:
        """The address of a process's page, relative to the folder of the console. `page`: or `history`."""
        return f"{page}/{quote(name, safe='')}"

    def request(self, request_id: str, process: str = "") -> str:
        """The address of a request's page."""
        return _address("request", {"id": request_id, "process": process})

    def timed(self, text: str) -> Markup:
        """A text of a command, in which each time is one that the page shows in its zone."""
        parts = _TIME.split(text)
        return Markup("").join(_timed(each) if number % 2 else _plain(each) for number, each in enumerate(parts))

    def about(self, text: str, process: str | None) -> Markup:
        """A text in which the name of a process leads to its page."""
        before, name, after = text.partition(process) if process else (text, "", "")
        link = Markup('<a href="{}">{}</a>').format(self.process(name), name) if name else Markup("")
        return self.timed(before) + link + self.timed(after)

    def here(self, **query: object) -> str:
        """The address of this page with other parameters; empty ones are left out, and a filter leads to page 1."""
        return _address(self.path, {**self.query, "page": "", **query})

    def offer(self, title: str, step: NextStep | Callable[[Fields], NextStep]) -> str:
        """The key of a button that runs a command. It stays the same while the page is rendered again and again."""
        arguments = step.arguments if isinstance(step, NextStep) else (self.path,)
        key = sha256("\0".join((title, *arguments)).encode(errors="replace")).hexdigest()[:16]
        self.offers[key] = Offer(title, step)
        return key

    def runs(self, command: str) -> dict[str, str] | None:
        """The button that runs a command of an answer. None if something of it is to be filled in, or if it changes
        something and this console does not."""
        if not isinstance(command, NextStep) or not command.is_complete:
            return None
        only_reads = reads(command)
        if not only_reads and not self.writes:
            return None
        key = self.offer(" ".join(command.arguments[:2]).capitalize(), command)
        return {"key": key, "label": "Show" if only_reads else "Run"}

    def page_of[Row](self, rows: Sequence[Row]) -> dict[str, Any]:
        """The rows of the page that the address names, and where the others are."""
        pages = max(1, -(-len(rows) // PAGE_ROWS))
        given = self.query.get("page", "")
        page = min(max(1, int(given) if given.isdecimal() and len(given) < 9 else 1), pages)
        first = (page - 1) * PAGE_ROWS
        shown = rows[first : first + PAGE_ROWS]
        return {
            "rows": shown,
            "page": page,
            "pages": pages,
            "first": first + 1,
            "last": first + len(shown),
            "all": len(rows),
        }


@dataclass(frozen=True)
class PagePart:
    """A part of a page: a reading, and the template that shows it.

    Args:
        shape: makes the variables of the template of what was read and the page's view.
    """

    template: str
    reading: PageReading
    shape: Callable[[Mapping[str, Any], View], Mapping[str, Any]] = lambda data, _: data


@dataclass
class Console:
    """The parts that all pages share.

    Args:
        badges: of what the numbers in the navigation are made.
        numbers: makes them, by the title of the page.
    """

    where: str
    actions: Actions
    readings: SharedReadings
    badges: PageReading
    numbers: Callable[[Mapping[str, Any]], Mapping[str, int]]

    def __post_init__(self) -> None:
        self._open: dict[str, list[Callable[[], Awaitable[None]]]] = {}

    def read_again(self) -> None:
        """Read again what any open page shows, since an action may have changed it."""
        self.readings.forget()
        for each in [refresh for of in self._open.values() for refresh in of]:
            background_tasks.create(each())

    def page(
        self, title: str, request: Request, parts: Sequence[PagePart], section: str = "", *, also: str = "title.html"
    ) -> None:
        """Make a page of parts, below a template that shows the title."""
        root = request.scope["root_path"]
        path = quote(request.scope["path"].removeprefix(root).removeprefix("/")) or "./"
        ui.page_title(f"{printable(title)} - {self.where} - Slotkeeper")
        # Addresses of pages are relative to the folder of the console's entrance, which no other program knows.
        ui.add_head_html(f'<base href="{root}/"><style>{style()}{_style()}</style>')
        ui.add_body_html(f"<script>{script()}</script>")
        query = {name: value for name, value in request.query_params.items() if name != "token"}
        frame = {"title": title, "section": section or title, "where": self.where, "here": _address(path, query)}
        ui.query("body").classes("look console")
        with ui.header(elevated=False).classes("console-header"):
            header = ui.html(sanitize=False)

        def show_header(badges: Mapping[str, Any]) -> None:
            header.set_content(render("header.html", badges=badges, writes=self.actions.writes, **frame))

        show_header({})
        self._follow(self.badges, lambda _at, data, _error: show_header(self.numbers(data)) if data else None)
        ui.html(render(also, **frame), sanitize=False)
        errors = [""] * len(parts)
        for number, part in enumerate(parts):
            self._show(part, View(self.actions.writes, path, query, self.actions.whole), errors, number)

    def _show(self, part: PagePart, view: View, errors: list[str], number: int) -> None:
        """Show the part of a number. `errors`: of all parts of the page, of which equal ones are shown once."""
        content = ui.html(sanitize=False).classes("part")
        state = ui.html(sanitize=False).classes("part-state")

        def show(at: str | None, data: Mapping[str, Any] | None, error: str) -> None:
            if data is not None:
                view.offers = {}
                content.set_content(render(part.template, **part.shape(data, view), view=view))
            errors[number] = error
            state_of = {"at": at, "error": error, "is_new": error not in errors[:number]}
            state.set_content(render("state.html", **state_of, repeats=part.reading.every is not None))

        content.on("click", lambda event: self.actions.ask(*_offered(view, event.args)), js_handler=_ON_CLICK)
        show(None, None, "")
        again = self._follow(part.reading, show)
        state.on("click", again, js_handler="event => { if (event.target.closest('button')) emit() }")

    def _follow(
        self, reading: PageReading, show: Callable[[str | None, Mapping[str, Any] | None, str], object]
    ) -> Callable[[], Awaitable[None]]:
        """Show a reading now and after each refresh; returns what reads it again. A failed reading is stated."""
        latest: list[Snapshot] = []

        async def refresh(*, again: bool = False) -> None:
            try:
                snapshot = await self.readings.read(reading, again=again)
                if latest and snapshot.at < latest[-1].at:
                    return  # it began before an action, and what was read after the action is shown already
                show(iso(snapshot.at), snapshot.data, "")
                latest[:] = [snapshot]
            except Exception as error:  # else a page would wait forever
                why = f"an error of the console: {error!r}"
                if isinstance(error, CommandError):
                    why = " ".join(error.sentences)
                elif is_failure(error):
                    why = failure_text(error)
                show(iso(latest[-1].at) if latest else None, None, why)

        if known := self.readings.known(reading):
            latest[:] = [known]
            show(iso(known.at), known.data, "")
        every = reading.every
        ui.timer(every or 0, refresh, once=every is None)
        client = ui.context.client
        if client.id not in self._open:
            client.on_delete(lambda: self._open.pop(client.id, None))
        self._open.setdefault(client.id, []).append(refresh)
        return lambda: refresh(again=True)


@cache
def _style() -> str:
    return (Path(__file__).parent / "templates" / "console.css").read_text(encoding="utf-8")


def _plain(text: str) -> str:
    return printable(hide_tokens(text))


def _timed(text: str) -> Markup | str:
    """A time of _TIME as the page shows it. One that no command has written, as of another zone, stays as it is."""
    try:
        moment = _moment(text)
        return _plain(text) if moment is None else when(moment, exact=True)
    except (ValueError, OverflowError, OSError):  # a sender may write 0000-00-00 00:00:00 UTC
        return _plain(text)


def _moment(text: str) -> float | None:
    """A time of _TIME in seconds since the epoch; None if the clock of this machine does not show it.

    Of the hour that a zone has twice, the name of the zone decides.
    """
    if text.endswith("Z") and "T" in text:
        return seconds(text)
    shown = datetime.strptime(text[:19], "%Y-%m-%d %H:%M:%S")  # in the zone of this machine
    moments = (shown.replace(fold=fold).timestamp() for fold in (0, 1))
    return next((each for each in moments if local_time(each) == text), None)


def _offered(view: View, sent: Any) -> tuple[Offer | None, dict[str, list[str]]]:
    """The request of a browser, which may send anything."""
    key, given = sent if isinstance(sent, list) and len(sent) == 2 else ("", {})
    fields = given if isinstance(given, dict) else {}
    texts = {name: [str(each) for each in values] for name, values in fields.items() if isinstance(values, list)}
    return view.offers.get(str(key)), texts
