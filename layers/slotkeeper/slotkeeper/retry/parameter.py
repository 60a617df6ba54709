"""The retry policy that operators put into SSM Parameter Store. Whatever is there, there always is a policy."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from slotkeeper.json_body import InvalidBody, compile_schema, decode
from slotkeeper.retry.policy import BUILT_IN, Policy

if TYPE_CHECKING:
    from mypy_boto3_ssm import SSMClient

SCHEMA_FILE = Path(__file__).with_name("policy.schema.json")

_SERVER_ERROR = 500
_TOO_MANY = {"ThrottlingException", "Throttling", "TooManyRequestsException", "RequestLimitExceeded"}


class InvalidPolicy(ValueError):
    """A parameter's value that is no policy; the text says what was wrong and what was expected."""


class PolicyParameter:
    """The policy in a parameter, read again after a while.

    Not by Powertools' SSMProvider: that keeps only what it could read, so that every message would ask again for a
    parameter which is missing or throttled.

    Args:
        name: the parameter's, as GetParameter takes it.
        on_invalid: is told, once for every reading, why a reading gave no policy and which one holds instead.
        keep_seconds: for how long a reading holds, one that failed too.
        clock: seconds that only ever grow.
    """

    def __init__(
        self,
        ssm: SSMClient,
        name: str,
        *,
        on_invalid: Callable[[str], None],
        keep_seconds: float = 60,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not 0 <= keep_seconds < inf:
            raise ValueError(f"keep_seconds must be a finite number of seconds, 0 or more, got {keep_seconds!r}")
        self._ssm = ssm
        self._name = name
        self._on_invalid = on_invalid
        self._keep_seconds = keep_seconds
        self._clock = clock
        self._policy = BUILT_IN
        self._read_at = -inf

    def get(self) -> Policy:
        """The policy that holds now. Raises nothing: whoever asks has a failed message in hand."""
        now = self._clock()
        if now - self._read_at >= self._keep_seconds:
            self._read_at = now
            self._policy = self._read()
        return self._policy

    def _read(self) -> Policy:
        try:
            return parse_policy(self._ssm.get_parameter(Name=self._name)["Parameter"]["Value"])
        except InvalidPolicy as error:
            return self._instead(BUILT_IN, f"is not valid: {error}")
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "an error without a code")
            return self._instead(self._policy if _will_pass(error) else BUILT_IN, f"cannot be read: {code}")
        except BotoCoreError as error:
            return self._instead(self._policy, f"cannot be read: {error}")

    def _instead(self, policy: Policy, what: str) -> Policy:
        used = "the built-in policy" if policy is BUILT_IN else "the policy read before"
        self._on_invalid(
            f"retry policy: SSM parameter {self._name} {what}; {used} is used instead, and the parameter read again "
            f"after {self._keep_seconds:g} s"
        )
        return policy


def parse_policy(text: str) -> Policy:
    """Reads a parameter's value.

    Raises:
        InvalidPolicy: not JSON, not what policy.schema.json says, or values that do not go together.
    """
    try:
        document = decode(text, _validator())
    except InvalidBody as error:
        raise InvalidPolicy(f"value{str(error).removeprefix('body')}") from error
    try:
        return Policy.from_document(document)
    except ValueError as error:
        raise InvalidPolicy(f"value.{error}") from error


def _will_pass(error: ClientError) -> bool:
    """Throttled or out of order: what was read before is as good as it was. All else lasts until it is corrected."""
    code = error.response.get("Error", {}).get("Code", "")
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return code in _TOO_MANY or status >= _SERVER_ERROR


@cache
def _validator() -> Callable[[Any], Any]:
    return compile_schema(SCHEMA_FILE)
