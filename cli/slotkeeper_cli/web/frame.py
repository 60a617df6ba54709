"""What every page has: the navigation, the time of what it shows, and how it stays up to date."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self
from urllib.parse import quote, urlencode

from nicegui import run, ui

from slotkeeper.printable import printable
from slotkeeper_cli.errors import CommandError, failure_text, is_failure
from slotkeeper_cli.formatting import local_time
from slotkeeper_cli.web.reading import REFRESH, Snapshot, StackReader

_SECTIONS = {
    "Processes": "./",
    "Failures": "failures",
    "Retries": "retries",
    "Token": "token",
    "Alarms": "alarms",
}
# A link in a cell goes to the row's `href`. Vue shows every value as text.
_LINK = """<q-td :props="props"><a v-if="props.row.href" :href="props.row.href">{{ props.value }}</a>
<template v-else>{{ props.value }}</template></q-td>"""
_BLUE = "#1e4fa3"  # white on it has a contrast of 7.8:1
_STYLE = """
body { --nicegui-default-padding: 1rem; overflow-wrap: anywhere }
a { text-decoration: underline; color: #1e4fa3 }
.body--dark a { color: #93c5fd }
.q-header a { color: inherit }
.q-table td { white-space: normal; overflow-wrap: anywhere; min-width: 6rem }
.body--dark .q-btn--outline, .body--dark .q-btn--flat { color: #93c5fd !important }
"""


def process_address(name: str) -> str:
    """The address of a process's page, relative as all addresses of pages."""
    return f"process/{quote(name, safe='')}"


def request_address(request_id: str, process: str = "") -> str:
    """The address of a request's page."""
    query = {"id": request_id} | ({"process": process} if process else {})
    return f"request?{urlencode(query)}"


class Frame:
    """The frame of one page, and the refreshes of its content.

    `with Frame(...)` puts what follows into the page's main part.
    """

    def __init__(self, reader: StackReader, title: str, writes: bool) -> None:
        ui.page_title(f"{printable(title)} - {reader.stack.name} - Slotkeeper")
        # Addresses of pages are relative to the folder of the console's entrance, which no other program knows.
        ui.add_head_html(f'<base href="{ui.context.client.request.scope["root_path"]}/">')
        ui.add_css(_STYLE)
        ui.colors(primary=_BLUE)
        with ui.header().classes("items-center gap-4 py-2 wrap"):
            ui.label("Slotkeeper").classes("text-lg font-bold")
            with ui.element("nav").props('aria-label="Pages"').classes("flex gap-4"):
                for name, address in _SECTIONS.items():
                    ui.link(name, address).props('aria-current="page"' if name == title else "")
            ui.space()
            with ui.element("form").props('action="request" role="search"').classes("flex gap-2 items-center"):
                ui.input(placeholder="Find a request by id").props(
                    'name="id" aria-label="Id of a request" dense dark standout'
                )
            where = f"{reader.stack.name} in {reader.stack.region}" + " (local)" * reader.stack.is_local
            ui.label(where + ("" if writes else ", read-only"))
        ui.label(printable(title)).props('role="heading" aria-level="1"').classes("text-2xl font-bold")
        self._read_at = ui.label("Reading ...").props('role="status"').classes("text-sm opacity-70")
        self._content = ui.column().classes("w-full gap-4")

    def __enter__(self) -> Self:
        self._content.__enter__()
        return self

    def __exit__(self, *of_error: object) -> None:
        self._content.__exit__(*of_error)

    def follow[Data](
        self, read: Callable[[], Snapshot[Data]], show: Callable[[Data], None], every: float | None = REFRESH
    ) -> None:
        """Show what `read` returns, once the browser has the page, and then every some seconds.

        A failed read is stated, and what was shown stays under its own time.

        Args:
            show: receives the data. It changes the page's elements, so that focus, filter and scrolling stay.
            every: None for a page that is read again only when the operator asks.
        """

        async def refresh() -> None:
            try:
                reading = await run.io_bound(read)
            except Exception as error:
                if not is_failure(error):
                    raise
                why = " ".join(error.sentences) if isinstance(error, CommandError) else failure_text(error)
                before = self._read_at.text.removesuffix(".").partition(". NOT READ: ")[0]
                self._read_at.set_text(printable(f"{before}. NOT READ: {why}"))
                self._read_at.classes("text-negative")
                return
            if reading is None:
                return  # the console is being ended
            with self._content:
                show(reading.data)
            self._read_at.set_text(f"Read at {local_time(reading.at)}")
            self._read_at.classes(remove="text-negative")

        if every is None:
            with self._content:
                ui.button("Read again", icon="refresh", on_click=refresh).props("outline dense no-caps")
        ui.timer(every or 0, refresh, once=every is None)


def data_table(title: str, columns: Mapping[str, str], key: str, *, link: str = "") -> ui.table:
    """A table with a filter. Quasar's table is one of rows and headers to a screen reader, and sorts by its headers.

    Args:
        columns: the headings by the field of a row. A heading that begins with `>` is aligned right.
        key: the field that identifies a row.
        link: the column whose cells link to the row's `href`.
    """
    made = ui.table(
        title=title,
        columns=[
            {
                "name": name,
                "label": heading.removeprefix(">"),
                "field": name,
                "align": "right" if heading.startswith(">") else "left",
                "sortable": True,
            }
            for name, heading in columns.items()
        ],
        rows=[],
        row_key=key,
        pagination=25,
    )
    made.classes("w-full").props("flat bordered dense")
    with made.add_slot("top-right"):
        ui.input(placeholder="Filter").props(f'dense clearable aria-label="Filter {title}"').bind_value(made, "filter")
    if link:
        made.add_slot(f"body-cell-{link}", _LINK)
    return made


def set_rows(table: ui.table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Replace the rows of a table, if they changed. Control characters of what a sender wrote are escaped."""
    shown = [
        {name: printable(value) if isinstance(value, str) else value for name, value in row.items()} for row in rows
    ]
    if table.rows != shown:
        table.rows = shown


class Texts(ui.column):
    """Content that is replaced only if it changed, so that focus and what a screen reader has read stay."""

    def __init__(self, classes: str = "") -> None:
        super().__init__()
        self.classes("gap-1")
        self._each, self._shown = classes, list[str]()

    def replace(self, content: Sequence[str]) -> bool:
        """Remove what is shown if the new content differs; whether it does."""
        if changed := self._shown != [*content]:
            self._shown = [*content]
            self.clear()
        return changed

    def show(self, texts: Iterable[str]) -> None:
        """Show a line for each text."""
        shown = [*texts]
        if self.replace(shown):
            with self:
                for each in shown:
                    ui.label(printable(each)).classes(self._each)
