"""Answers CloudFormation's custom resource events, and retries calls until a new role is effective."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import backoff
import urllib3
from botocore.exceptions import ClientError

from slotkeeper.observability import logger

ANSWER_SECONDS = 10.0
ANSWER_TRIES = 2  # each has half of ANSWER_SECONDS
ROLE_SECONDS = 30
# The maximum of a reason or a value as JSON, where one character may take six bytes. CloudFormation accepts 4096 bytes
# in total (CloudFormation guide, "Custom resource response objects"), refuses more, and continues to wait.
MAX_TEXT_BYTES = 2000


def answer(
    event: Mapping[str, Any], physical_id: str, *, failed: str = "", data: Mapping[str, str] | None = None
) -> None:
    """Answer a custom resource event: success with `data` for the template, or the reason in `failed`.

    Every event must be answered: without an answer CloudFormation waits for an hour (CloudFormation guide, "Custom
    resources"). If `physical_id` changes, CloudFormation sends an event to delete the old resource.

    Raises:
        urllib3.exceptions.HTTPError: CloudFormation's URL did not respond within `ANSWER_SECONDS`.
    """
    body: dict[str, Any] = {
        "Status": "FAILED" if failed else "SUCCESS",
        "PhysicalResourceId": physical_id,
        "StackId": event["StackId"],
        "RequestId": event["RequestId"],
        "LogicalResourceId": event["LogicalResourceId"],
    }
    given = {name: _short(text) for name, text in (data or {}).items()}
    body |= {"Reason": _short(failed)} if failed else {"Data": given}
    status = 0
    for tries_left in reversed(range(ANSWER_TRIES)):
        try:
            status = _put(event["ResponseURL"], json.dumps(body))
        except urllib3.exceptions.HTTPError:
            if not tries_left:
                raise
        else:
            if status < 500:
                break
    if status != 200:  # do not log the URL: with it any caller could answer
        logger.error("CloudFormation did not accept the answer and waits for up to an hour", status=status)


def _put(url: str, body: str) -> int:
    # CloudFormation signs the URL without a content type. Any other value of this header invalidates the signature.
    http, timeout = urllib3.PoolManager(retries=False), urllib3.Timeout(total=ANSWER_SECONDS / ANSWER_TRIES)
    return http.request("PUT", url, body=body, headers={"Content-Type": ""}, timeout=timeout).status


def _short(text: str) -> str:
    while len(json.dumps(text)) > MAX_TEXT_BYTES:
        text = text[: len(text) * 3 // 4]
    return text


def _is_final(error: Exception) -> bool:
    return not isinstance(error, ClientError) or error.response["Error"]["Code"] != "AccessDeniedException"


# A role that this deployment has just created may not be effective yet (IAM guide, "Changes that I make are not always
# immediately visible").
until_the_role_is_known = backoff.on_exception(
    backoff.expo, ClientError, giveup=_is_final, max_time=ROLE_SECONDS, logger=None
)
