"""The questions that commands ask on a terminal, and what each answer does."""

from __future__ import annotations

import pytest

from tests.cli.operator_account import Operator
from tests.cli.terminal import terminal

REMOVE = ("process", "remove", "sample")


@pytest.mark.usefixtures("operator")
@pytest.mark.parametrize(
    ("answer", "exit_code", "says"),
    [
        ("y\n", 0, "is removed"),
        ("n\n", 3, "Nothing was changed."),
        ("\n", 3, "Nothing was changed."),
        ("\x03", 130, "Interrupted."),
        ("\x04", 130, "Interrupted."),
    ],
    ids=["yes", "no", "enter", "ctrl-c", "ctrl-d"],
)
def test_an_answer_on_the_terminal(answer: str, exit_code: int, says: str) -> None:
    with terminal(*REMOVE) as shown:
        shown.shows("[y/N]:")
        shown.type(answer)
        assert shown.ends() == exit_code
        assert says in shown.text()


def test_without_a_terminal_a_question_is_refused(operator: Operator) -> None:
    ended = operator.run(*REMOVE)

    assert (ended.exit_code, ended.stdout) == (3, "")
    assert "give --yes to confirm" in ended.stderr
