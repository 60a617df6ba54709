"""The planner's view of an exception."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from slotkeeper.retry.errors import MAX_REASON_CHARACTERS, Failure, Poison, Retryable


class RateLimited(Retryable):
    """A type that a policy can name."""


class OfItsOwnMaking(Retryable):
    """Its constructor does not call Retryable's."""

    def __init__(self, status: int) -> None:
        Exception.__init__(self, f"status {status}")


class FullDisk(OSError):
    """A type of a third party."""


class NoSuchKey(ClientError):
    """boto3 creates one such type for each error of a service, named like its code."""


def answered(error: dict[str, Any]) -> ClientError:
    return ClientError({"Error": error}, "GetObject")


@pytest.mark.parametrize(
    ("exception", "types"),
    [
        (RateLimited("later"), ("RateLimited", "Retryable")),
        (FullDisk("full"), ("FullDisk", "OSError")),
        (Exception("anything"), ()),
        (answered({"Code": "SlowDown"}), ("SlowDown", "ClientError")),
        (answered({}), ("ClientError",)),
        (NoSuchKey({"Error": {"Code": "NoSuchKey"}}, "GetObject"), ("NoSuchKey", "ClientError")),
    ],
)
def test_types_go_from_the_most_specific_to_the_least(exception: Exception, types: tuple[str, ...]) -> None:
    assert Failure.of(exception).types == types


def test_retry_after_of_the_downstream_is_kept() -> None:
    assert Failure.of(RateLimited("later", retry_after=2.5)).retry_after == 2.5


def test_a_subclass_with_its_own_constructor_has_no_retry_after() -> None:
    assert Failure.of(OfItsOwnMaking(503)) == Failure(("OfItsOwnMaking", "Retryable"), "OfItsOwnMaking: status 503")


def test_only_poison_is_final() -> None:
    assert [Failure.of(exception).final for exception in (Poison("no such field"), Retryable(), KeyError())] == [
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("exception", "reason"),
    [
        (Poison("no such field"), "no such field"),
        (KeyError("a"), "KeyError: 'a'"),
        (Retryable(), "Retryable"),
        (ValueError(" \n"), "ValueError"),
        (ValueError("line one\nline\ttwo"), "ValueError: line one line two"),
        (ValueError("x" * 9999), "ValueError: " + "x" * (MAX_REASON_CHARACTERS - 12)),
    ],
)
def test_a_reason_names_the_type_and_has_a_limited_length(exception: Exception, reason: str) -> None:
    assert Failure.of(exception).reason == reason


def test_characters_that_sqs_refuses_are_replaced_in_a_reason() -> None:
    assert Failure.of(ValueError("a\x00b\ud800c\uffffd")).reason == "ValueError: a b c d"
