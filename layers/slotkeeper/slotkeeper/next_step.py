"""Commands of the operator command that texts advise, and that the console in the browser runs.

Senders choose ids, and others write items of the tables: each value reaches the command unchanged, and as a value.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import Self


class ToFillIn(str):
    """A part that the operator replaces before the command is run, such as `TEXT`."""

    __slots__ = ()


class NextStep(str):
    """A command as a shell reads it.

    Attributes:
        arguments: of `slotkeeper`.
        is_complete: whether nothing of it is to be filled in.
    """

    arguments: tuple[str, ...]
    is_complete: bool

    def __new__(cls, arguments: Iterable[str]) -> Self:
        given = tuple(arguments)
        step = super().__new__(cls, shell_text("slotkeeper", *given))
        step.arguments, step.is_complete = given, not any(isinstance(each, ToFillIn) for each in given)
        return step


def next_step(command: str, *values: object, **options: object) -> NextStep:
    """A command with ids, names and numbers, none of which it reads as an option.

    Args:
        command: such as `retry run-now`.
        values: in their order.
        options: by their names, with underscores. True is an option without a value, a list one that is repeated,
            None one that is left out.
    """
    given, chosen = [_argument(each) for each in values], list[str]()
    for name, value in options.items():
        if value is None:
            continue
        option = f"--{name.replace('_', '-')}"
        for each in value if isinstance(value, list) else [value]:
            # The command reads the argument after an option that has a value as this value, also with a dash.
            chosen.extend([option] if value is True else [option, _argument(each)])
    if any(each.startswith("-") for each in given):
        return NextStep([*command.split(), *chosen, "--", *given])
    return NextStep([*command.split(), *given, *chosen])


def _argument(value: object) -> str:
    """The value as text. An argument cannot contain NUL: with JSON's escape in its place, it names nothing."""
    return value if isinstance(value, ToFillIn) else str(value).replace("\0", "\\u0000")


def shell_text(*arguments: str) -> str:
    r"""A command line without control characters, which a terminal obeys and this project escapes: ESC is `$'\033'`.

    Source of `$'...'`: POSIX.1-2024, Shell Command Language, "Dollar-Single-Quotes"; bash and zsh have it for long.
    """
    return " ".join(shlex.quote(each) if each.isprintable() else f"$'{_escaped(each)}'" for each in arguments)


def _escaped(text: str) -> str:
    # Octal, since its three digits end where a byte ends.
    octal = (
        each if each.isprintable() else "".join(f"\\{byte:03o}" for byte in each.encode(errors="surrogatepass"))
        for each in text.replace("\\", "\\\\").replace("'", "\\'")
    )
    return "".join(octal)
