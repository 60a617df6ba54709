"""Renew the timestamp and signature of a sample event of the chatbot.

    python -m dev.tools.sign_event events/chatbot/happy.json --secret "$SIGNING_KEY_SECRET_ARN" \
      | sam local invoke ChatbotFunction --config-env dev -e -

All samples were signed at SAMPLE_MOMENT with a public key. The timestamp moves from that moment to now, and a valid
signature is renewed with your stack's key. A stale event remains stale, and a wrong signature remains wrong.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import boto3
import click
from botocore.exceptions import BotoCoreError, ClientError

from dev.emulator.chatbot_client import first_key, signed

SAMPLE_MOMENT = 1_800_000_000
SAMPLE_KEY = "the-key-of-the-sample-events"
TIMESTAMP, SIGNATURE = "X-Slotkeeper-Timestamp", "X-Slotkeeper-Signature"


def freshen(event: dict[str, Any], key: str, now: float) -> dict[str, Any]:
    """The event as a sender with `key` would send it `now`, in seconds since the epoch."""
    headers = dict(event["headers"])
    stamp, body = headers[TIMESTAMP], event["body"].encode()
    if not stamp.isdecimal():
        return event
    moved = int(now) + int(stamp) - SAMPLE_MOMENT
    headers[TIMESTAMP] = str(moved)
    if headers.get(SIGNATURE) == signed(SAMPLE_KEY, int(stamp), body)[SIGNATURE]:
        headers[SIGNATURE] = signed(key, moved, body)[SIGNATURE]
    return event | {"headers": headers}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--secret", required=True, help="Stack output SigningKeySecretArn; read with your AWS credentials.")
def main(file: Path, secret: str) -> None:
    """Print a sample event, signed now with your stack's key."""
    try:
        text = boto3.client("secretsmanager").get_secret_value(SecretId=secret)["SecretString"]
    except (BotoCoreError, ClientError) as error:
        raise click.ClickException(str(error)) from None
    json.dump(freshen(json.loads(file.read_text()), first_key(text), time.time()), sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main(prog_name="python -m dev.tools.sign_event")
