"""Reads and checks the chatbot's secrets in Secrets Manager. No error message contains a secret's value."""

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

# Seconds for which a container caches the signing keys. After that, all containers use changed keys. A wrong signature
# does not cause an earlier read, because then any sender could cause one per request.
SIGNING_KEYS_CACHE_SECONDS = 300
# Seconds for which a container caches that it could not read them.
MISSING_KEYS_CACHE_SECONDS = 5.0
# Not cached: they are read once per POST /auth, of which the token lock allows few, and a correction takes effect at
# the next one.
CREDENTIALS_CACHE_SECONDS = 0

# Errors that every container gets until an operator fixes the cause (API Reference, GetSecretValue, Errors;
# AccessDenied is one of the "Common Errors"). Other errors are temporary, or affect one container only.
_PERMANENT_ERRORS = {
    "AccessDeniedException",
    "DecryptionFailure",
    "InvalidParameterException",
    "InvalidRequestException",
}

MIN_KEY_LENGTH = 16  # characters; with an empty key any sender could sign


def _is_key(value: object) -> bool:
    # JSON can contain half of a surrogate pair, which cannot be encoded and so cannot be a key.
    return isinstance(value, str) and len(value) >= MIN_KEY_LENGTH and value.encode(errors="replace").decode() == value


class UnusableSecret(Exception):
    """A secret cannot be read or has the wrong format. The message names the stack's output for it."""


class UnreadableSecret(UnusableSecret):
    """Secrets Manager did not answer this container. Another one, or a later try, may read the secret."""


@dataclass(frozen=True)
class Credentials:
    """The chatbot's credentials for the chat API."""

    client_id: str
    client_secret: str = field(repr=False)


class Secrets:
    """Reads secrets by their ids. Its methods raise UnusableSecret."""

    def __init__(self, secretsmanager: SecretsManagerClient) -> None:
        self._provider = SecretsProvider(boto3_client=secretsmanager)
        self._no_keys: UnusableSecret | None = None
        self._no_keys_since = 0.0

    def signing_keys(self, secret_id: str) -> list[str]:
        """Return the accepted keys: `signing_key`, which the deployment created, and those in the list `signing_keys`.

        A failure is cached too, because every request from any sender reads the keys.
        """
        now = time.time()  # the monotonic clock may stop while a container is frozen
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
        """Return the credentials for the chat API."""
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
            # Powertools' `transform` is not used: it does not cache a value that cannot be parsed, so that every
            # message would read the secret.
            text = self._provider.get(secret_id, max_age=max_age)
        except GetParameterError as error:
            # Its message names the role and the account, which must not appear in an answer to a sender.
            why = error.__context__
            code = why.response["Error"]["Code"] if isinstance(why, ClientError) else type(why).__name__
            if code == "ResourceNotFoundException":
                return {}  # the secret has no value yet
            is_permanent = isinstance(why, ClientError) and code in _PERMANENT_ERRORS
            unusable = UnusableSecret if is_permanent else UnreadableSecret
            raise unusable(f"the secret in the output {output} cannot be read: {code}") from error
        try:
            secret = json.loads(str(text))
        except (ValueError, RecursionError):
            secret = {}
        return secret if isinstance(secret, dict) else {}
