"""Reads the HTML pages of the command."""

from __future__ import annotations

from html.parser import HTMLParser

from slotkeeper_cli.look.pages import script, script_hash


class Page(HTMLParser):
    """The elements and texts of a page; it must close what it opens."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.scripts: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        inside = self.open[-1:] or [""]
        if inside != ["style"] and data.strip():
            (self.scripts if inside == ["script"] else self.texts).append(data.strip())


def read_page(text: str) -> Page:
    """The page, which is well formed, loads nothing, runs the script of all pages alone, and has no sender's markup."""
    page = Page()
    page.feed(text)
    assert page.open == []
    assert {tag for tag, _ in page.elements} & {"img", "link", "iframe"} == set()
    assert page.scripts == [script().strip()]
    names = {name for _, attributes in page.elements for name in attributes}
    assert not [name for name in names if name in ("src", "href") or name.startswith("on")]
    policies = [each.get("content") for tag, each in page.elements if tag == "meta" and "http-equiv" in each]
    assert policies == [f"default-src 'none'; style-src 'unsafe-inline'; script-src '{script_hash()}'"]
    return page
