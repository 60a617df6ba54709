"""Reads the HTML pages of the command."""

from __future__ import annotations

from html.parser import HTMLParser


class Page(HTMLParser):
    """The elements and texts of a page; it must close what it opens."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def read_page(text: str) -> Page:
    """The page, which is well formed, loads nothing, runs nothing, and has no markup of a sender."""
    page = Page()
    page.feed(text)
    assert page.open == []
    assert {tag for tag, _ in page.elements} & {"script", "img", "link", "iframe", "b"} == set()
    assert not [name for _, attributes in page.elements for name in attributes if name in ("src", "href", "onload")]
    policies = [each.get("content") for tag, each in page.elements if tag == "meta" and "http-equiv" in each]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'"]
    return page
