"""The frame of HTML pages to send to others: one file, without scripts, that loads nothing."""

from __future__ import annotations

import html
from collections.abc import Iterable
from pathlib import Path

from slotkeeper.printable import printable
from slotkeeper_cli.errors import CommandFailed
from slotkeeper_cli.requests import hide_tokens

_STYLE = """
:root { color-scheme: light dark; --text: #1b1f24; --dim: #59636e; --page: #fff; --line: #d1d9e0; --bar: #2a6fbb;
  --lost: #b3261e; --box: #f4f6f8 }
@media (prefers-color-scheme: dark) { :root { --text: #e6e9ec; --dim: #9da7b1; --page: #15191e; --line: #3a424b;
  --bar: #6cabf0; --lost: #ff8a80; --box: #1e242b } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--page); max-width: 62rem;
  margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2rem } h3 { font-size: 1rem; margin: 0 }
table { border-collapse: collapse; width: 100% } .wide { overflow-x: auto }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top }
th { color: var(--dim); font-weight: 500; white-space: nowrap } td { min-width: 6rem }
tbody th { color: var(--text); font-weight: 400; white-space: normal; min-width: 7rem }
.number { text-align: right; white-space: nowrap; min-width: 0 }
.lost { color: var(--lost); font-weight: 600 } .dim, footer, figcaption { color: var(--dim); font-size: .87rem }
"""


def escaped(text: str) -> str:
    """A text of a sender as text of a page: without markup, control characters and task tokens."""
    return html.escape(printable(hide_tokens(text)))


def document(title: str, style: str, body: Iterable[str]) -> str:
    """A page, to be written in UTF-8. `title` is a text, `body` is HTML. The browser refuses scripts and requests."""
    return "\n".join(
        (
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8"/>',
            '<meta name="viewport" content="width=device-width, initial-scale=1"/>',
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"/>",
            f"<title>{escaped(title)}</title><style>{_STYLE}{style}</style></head><body>",
            f"<h1>{escaped(title)}</h1>",
            *body,
            "</body></html>",
        )
    )


def html_table(label: str, columns: Iterable[str], rows: Iterable[str], *, text_columns: int) -> str:
    """A table that scrolls where the screen is narrow.

    Args:
        label: its name for screen readers.
        rows: made by `html_row` with the same `text_columns`.
    """
    heads = "".join(
        f'<th scope="col"{_class(place, text_columns)}>{escaped(column)}</th>' for place, column in enumerate(columns)
    )
    return (
        f'<div class="wide" role="region" tabindex="0" aria-label="{escaped(label)}"><table><thead><tr>{heads}</tr>'
        f"</thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def html_row(first: str, *cells: str, text_columns: int) -> str:
    """A row, whose first cell is its heading. Further cells than `text_columns` in all are numbers."""
    made = (f"<td{_class(place, text_columns)}>{escaped(text)}</td>" for place, text in enumerate(cells, 1))
    return f'<tr><th scope="row">{escaped(first)}</th>{"".join(made)}</tr>'


def _class(place: int, text_columns: int) -> str:
    return "" if place < text_columns else ' class="number"'


def write_page(path: Path, text: str) -> None:
    """Write a page.

    Raises:
        CommandFailed: the file cannot be written.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandFailed(f"cannot write the page to {path}: {error.strerror}. Give another FILE.") from error
