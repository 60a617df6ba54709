"""HTML pages: Jinja2 templates over the dicts that `--json` prints.

Templates are in look/templates, and those of the console in web/templates. Each value that is not markup is escaped,
without control characters and task tokens. A name that a template uses and `render` does not receive is an error.

| filter | of | as |
|---|---|---|
| `when` | a time: ISO 8601, or seconds since the epoch | relative, exact on hover; `when(exact=True)`: the reverse |
| `lasting` | seconds | `3 min 20 s` |
| `count` | a number | `1,234` |
| `cut` | an id | cut in the middle where it is seen, whole on hover, in a copy and for screen readers |
| `kind` | a word for a state | ok, busy, wait, warn, bad or off |
"""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from slotkeeper.printable import printable
from slotkeeper_cli.errors import CommandFailed
from slotkeeper_cli.formatting import duration, seconds, utc
from slotkeeper_cli.requests import hide_tokens

_HERE = Path(__file__).parent
_FOLDERS = (_HERE / "templates", _HERE.parent / "web" / "templates")
_SHOWN = 22  # characters of an id that is cut
_KINDS = {
    "ok": "succeeded holds closed active free published enabled ok",
    "busy": "started running busy confirmed leased",
    "wait": "queued waiting reserved delayed pending",
    "warn": "paused limit_0 not_shown too_late warn alarm half_open probing draining returned timed_out not_read",
    "bad": "failed fails malformed rejected dead_lettered aborted open bad lost disabled dead killed",
    "off": "skipped cancelled redriven idle removed off none gone",
}
_KIND_OF = {word: kind for kind, words in _KINDS.items() for word in words.split()}


def render(template: str, **data: Any) -> str:
    """The HTML of a template, in UTF-8. Raises jinja2.UndefinedError if it uses what `data` does not have."""
    return environment().get_template(template).render(data)


def style() -> str:
    """The stylesheet of all pages."""
    return (_HERE / "style.css").read_text(encoding="utf-8")


def script() -> str:
    """The script of all pages: it makes them more convenient, and none needs it."""
    return (_HERE / "script.js").read_text(encoding="utf-8")


def script_hash() -> str:
    """The source of the script in a Content-Security-Policy."""
    return f"sha256-{b64encode(sha256(script().encode()).digest()).decode()}"


def write_page(path: Path, text: str) -> None:
    """Write a page.

    Raises:
        CommandFailed: the file cannot be written.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandFailed(f"cannot write the page to {path}: {error.strerror}. Give another FILE.") from error


def when(at: str | float | None, exact: bool = False) -> Markup:
    """A time as an element that the script writes in the reader's zone. Without the script it is exact, in UTC."""
    if at is None or at == "":
        return Markup("")
    moment = utc(seconds(at) if isinstance(at, str) else at)
    mark = Markup(" data-exact") if exact else ""
    made = Markup('<time datetime="{:%Y-%m-%dT%H:%M:%S.%fZ}"{}>{:%Y-%m-%d %H:%M:%S} UTC</time>')
    return made.format(moment, mark, moment)


def lasting(amount: float | None) -> str:
    """A duration; of less than a minute with parts of a second, if it has them. Empty if it is not known."""
    if amount is None:
        return ""
    if isinstance(amount, int) or amount >= 60:
        return duration(amount)
    return f"{amount:.1f} s" if amount >= 1 else f"{amount:.2f} s"


def count(number: float | None) -> str:
    """A number with separators of thousands; empty if it is not known."""
    return "" if number is None else f"{number:,}"


def cut(text: str, shown: int = _SHOWN) -> Markup:
    """An id, of which the middle is not seen if it is longer than `shown` characters. The ends of ids differ."""
    whole = plain(text)
    if len(whole) <= shown:
        return Markup('<span class="id">{}</span>').format(whole)
    begin, end = (shown - 1) // 2, len(whole) - shown // 2
    made = Markup('<span class="id" title="{}">{}<span class="middle">{}</span>{}</span>')
    return made.format(whole, whole[:begin], whole[begin:end], whole[end:])


def kind(state: str) -> str:
    """The kind of a state, which gives its color."""
    return _KIND_OF.get(state.lower().replace(" ", "_").replace("-", "_"), "off")


def plain(text: str) -> str:
    """A text of a sender without control characters and task tokens. Before it is cut: a part of a token stays."""
    return printable(hide_tokens(text))


def escaped(text: str) -> str:
    """A text of a sender as text of a page: also without markup."""
    return str(escape(plain(text)))


def _finalized(value: Any) -> Any:
    if value is None:
        return ""
    return plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def environment() -> Environment:
    """The environment of the templates: their folders, filters and globals."""
    made = Environment(
        loader=FileSystemLoader(_FOLDERS),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalized,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {"when": when, "lasting": lasting, "count": count, "cut": cut, "kind": kind}
    made.globals |= {"style": Markup(style()), "script": Markup(script()), "script_hash": script_hash()}  # noqa: S704
    return made
