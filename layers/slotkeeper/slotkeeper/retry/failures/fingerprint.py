"""The fingerprint of an error message: its text without the parts that differ from one failure to the next.

    HTTP 503 from https://api.example/orders/8812?try=2 after 1.5 s
    HTTP 503 from https://api.example/orders/<n>?<query> after <n> s

A status or an error code stays, because another one is another cause.
"""

from __future__ import annotations

import re
from http import HTTPStatus

from slotkeeper.retry.ledger import MAX_ERROR_CHARACTERS

MAX_FINGERPRINT_CHARACTERS = 160

# The name of a status after its number, as in `404 Not Found`; `Client Error` and `Server Error` are of the library
# Requests.
_NAMES = "|".join(["Client Error", "Server Error", *(re.escape(each.phrase) for each in HTTPStatus if each >= 400)])
# After a word for it: `HTTP 503`, `status code: 502`, `exit code 137`, `[Errno 111]`, `ORA-00942`; where a clause ends
# or continues: `the API failed with 503 after 2 s`; or before its name.
_STATUS = re.compile(
    r"\b(?:HTTP(?:/\d(?:\.\d)?)?|[Ss]tatus)[ :=]{1,2}[1-5]?\d{1,2}\b(?!\.\d)"
    r"|\b\w*(?:[Cc]ode|[Ee]rrno)[ :=]{1,2}\d{1,5}\b(?!\.\d)"
    r"|\b(?:(?:ORA|PLS)-\d{5}\b|SQLSTATE\W{1,2}\w{5}\b)"
    r"|\b(?:with|answered|answers|returned|returns|got|[Ee]rror)[ :=]{1,2}[45]\d\d"
    r"(?=$|[.,:;)]| (?:for|from|after|on)\b)(?!\.\d)"
    r"|^[45]\d\d(?=$|:| [A-Z][a-z])"
    rf"|(?<![\w.])[45]\d\d\)?:? (?:{_NAMES})\b"
)
_QUERY = re.compile(r"(https?://[^\s?#'\"]*)[?#][^\s'\"]*")
_QUOTED = re.compile(r"(?<!\w)('[^']*'|\"[^\"]*\"|`[^`]*`)(?!\w)")
_OPEN_QUOTE = re.compile(r"(?<!\w)['\"`][^'\"`]*$")
_TIME = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?(?: ?(?:Z|UTC|GMT|[+-]\d\d:?\d\d))?)?"
    r"|\b(?:[A-Z][a-z]{2}, )?\d{1,2} [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d(?: GMT)?"
)
_NUMBER = r"[+-]?\d+(?:[.,]\d+)*(?:[eE][+-]?\d+)?"
_WHOLE_NUMBER = re.compile(_NUMBER)
# A number, or a word. A word with a digit is an id; so are 16 hexadecimal digits of which each is from a to f.
_WORD = re.compile(rf"(?<![\w<]){_NUMBER}(?![\w-])|[A-Za-z0-9_]+(?:[.-][A-Za-z0-9_]+)*")
_HEXADECIMAL = re.compile(r"[0-9a-fA-F]{16,}")
_LIST = re.compile(r"(<\w+>)(?:, ?\1)+")


def fingerprint(error: str, error_type: str = "") -> str:
    """Return the message without its variable parts, and without the error type at its beginning.

    Numbers, ids (words with a digit), hexadecimals, times, quoted texts and the query of a URL are replaced by their
    kind in angle brackets.
    """
    text = " ".join(error.split())
    if error_type:
        text = text.removeprefix(f"{error_type}: ")
    if len(error) >= MAX_ERROR_CHARACTERS:
        # The ledger has cut the text, so its end depends on the length of the variable parts.
        text = text.rpartition(" ")[0] or text
    text = _QUERY.sub(r"\1?<query>", text)
    text = _QUOTED.sub("<value>", text)
    if len(error) >= MAX_ERROR_CHARACTERS:
        text = _OPEN_QUOTE.sub("<value>", text)
    text = _TIME.sub("<time>", text)
    kept: list[str] = []
    at = 0
    for status in _STATUS.finditer(text):
        kept += (_without_ids(text[at : status.start()]), status.group())
        at = status.end()
    text = "".join((*kept, _without_ids(text[at:])))
    return _LIST.sub(r"\1", text)[:MAX_FINGERPRINT_CHARACTERS].strip()


def _without_ids(text: str) -> str:
    return _WORD.sub(_kind, text)


def _kind(word: re.Match[str]) -> str:
    text = word.group()
    if _WHOLE_NUMBER.fullmatch(text):
        return "<n>"
    return "<id>" if any(character.isdigit() for character in text) or _HEXADECIMAL.fullmatch(text) else text
