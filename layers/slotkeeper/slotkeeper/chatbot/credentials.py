"""What Secrets Manager keeps for the chatbot, read and checked. No text here ever holds a value of it."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools.utilities.parameters import SecretsProvider
from aws_lambda_powertools.utilities.parameters.exceptions import GetParameterError
from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from mypy_boto3_secretsmanager import SecretsManagerClient

# For how many seconds a container goes on with what it has read; after that changed keys are known everywhere. They are
# not read again any sooner for a signature that does not fit: a stranger could make us ask with every request.
SIGNING_KEYS_CACHE_SECONDS = 300
# For how many seconds a container remembers that it could not read them.
MISSING_KEYS_CACHE_SECONDS = 5.0
# Never kept: they are read once for each POST /auth, of which the token lock allows few, and corrected ones count at
# the next one.
CREDENTIALS_CACHE_SECONDS = 0

# What every container is answered until a person changes it (API Reference, GetSecretValue, Errors; AccessDenied is of
# "Common Errors"). Anything else passes, or is one container's own.
_PERMANENT_ERRORS = {
    "AccessDeniedException",
    "DecryptionFailure",
    "InvalidParameterException",
    "InvalidRequestException",
}

MIN_KEY_LENGTH = 16  # characters; an empty one would let anybody sign


def _is_key(value: object) -> bool:
    # Half of a surrogate pair, which JSON can escape, is no text that anybody could sign with.
    return isinstance(value, str) and len(value) >= MIN_KEY_LENGTH and value.encode(errors="replace").decode() == value


class UnusableSecret(Exception):
    """A secret cannot be read or is not what it has to be; the text names the stack's output for it."""


class UnreadableSecret(UnusableSecret):
    """Secrets Manager did not answer this container. Another one, or a later try, may read the secret."""


@dataclass(frozen=True)
class Credentials:
    client_id: str
    client_secret: str = field(repr=False)


class Secrets:
    """Secrets by their ids. Raises UnusableSecret."""

    def __init__(self, secretsmanager: SecretsManagerClient) -> None:
        self._provider = SecretsProvider(boto3_client=secretsmanager)
        self._no_keys: UnusableSecret | None = None
        self._no_keys_since = 0.0

    def signing_keys(self, secret_id: str) -> list[str]:
        """The keys that are accepted: `signing_key`, which the deployment made, or the list `signing_keys`, or both.

        That there are none is remembered too: every stranger's request asks for them.
        """
        now = time.time()  # the monotonic clock may stand still while a container is frozen
        if self._no_keys is not None and 0 <= now - self._no_keys_since < MISSING_KEYS_CACHE_SECONDS:
            raise type(self._no_keys)(*self._no_keys.args)
        try:
            return self._signing_keys(secret_id)
        except UnusableSecret as error:
            self._no_keys, self._no_keys_since = error, now
            raise

    def _signing_keys(self, secret_id: str) -> list[str]:
        secret = self._read(secret_id, SIGNING_KEYS_CACHE_SECONDS, "SigningKeySecretArn")
        listed = secret.get("signing_keys", [])
        keys = [secret["signing_key"]] if "signing_key" in secret else []
        keys += listed if isinstance(listed, list) else [listed]
        if not keys or not all(_is_key(key) for key in keys):
            raise UnusableSecret(
                'the secret in the output SigningKeySecretArn must be {"signing_keys": ["..."]}, each key a text of at '
                f"least {MIN_KEY_LENGTH} characters"
            )
        return keys

    def credentials(self, secret_id: str) -> Credentials:
        """What the chat API knows us by."""
        secret = self._read(secret_id, CREDENTIALS_CACHE_SECONDS, "ApiCredentialsSecretArn")
        match secret.get("client_id"), secret.get("client_secret"):
            case str(client_id), str(client_secret) if client_id and client_secret:
                return Credentials(client_id, client_secret)
        raise UnusableSecret(
            'the secret in the output ApiCredentialsSecretArn must be {"client_id": "...", "client_secret": "..."}, as '
            "the chat API gave them to you"
        )

    def _read(self, secret_id: str, max_age: int, output: str) -> dict[str, Any]:
        try:
            # Not Powertools' transform: what cannot be parsed would not be cached, and be read for every message.
            text = self._provider.get(secret_id, max_age=max_age)
        except GetParameterError as error:
            # Its own text names the role and the account, which are nobody's business who sends a message.
            why = error.__context__
            code = why.response["Error"]["Code"] if isinstance(why, ClientError) else type(why).__name__
            if code == "ResourceNotFoundException":
                return {}  # nobody has put a value yet
            for_good = isinstance(why, ClientError) and code in _PERMANENT_ERRORS
            unusable = UnusableSecret if for_good else UnreadableSecret
            raise unusable(f"the secret in the output {output} cannot be read: {code}") from error
        try:
            secret = json.loads(str(text))
        except (ValueError, RecursionError):
            secret = {}
        return secret if isinstance(secret, dict) else {}
