"""`python -m dev.emulator.chat_service`: the simulated chat API alone, in the foreground."""

from __future__ import annotations

import json
import sys
import threading

import click

from .control import PREFIX
from .exchanges import Request
from .server import ChatService
from .simulated_chat_api import ANSWER_LATENCY, AUTH_LATENCY, CLIENT_ID, CLIENT_SECRET

SECONDS = click.FloatRange(min=0, max=3600)


def _print_request(request: Request) -> None:
    took = (request.ended or request.began) - request.began
    missing = "unknown token" if request.unknown_token else "no token"
    token = missing if request.token is None else f"token {request.token}"
    click.echo(f"{request.method} {request.path}  {request.status or 'no answer'}  {token}  {took * 1000:.0f} ms")


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port on 127.0.0.1; 0 takes a free one.")
@click.option("--client-id", default=CLIENT_ID, help="The account's client id.")
@click.option(
    "--client-secret", default=CLIENT_SECRET, help="The account's secret. It protects nothing: use no real one."
)
@click.option("--auth-latency", type=SECONDS, default=AUTH_LATENCY, help="Latency of POST /auth in seconds.")
@click.option("--answer-latency", type=SECONDS, default=ANSWER_LATENCY, help="Latency of an answer in seconds.")
def main(port: int, client_id: str, client_secret: str, auth_latency: float, answer_latency: float) -> None:
    """Serve the simulated chat API on 127.0.0.1 until Ctrl-C. Every POST /auth invalidates the token before it.

    For a deployed chatbot, set the parameter ChatApiUrl to the URL, and store the credentials that this command prints
    in the secret of the stack's output ApiCredentialsSecretArn.
    """
    service = ChatService(
        port=port,
        client_id=client_id,
        client_secret=client_secret,
        auth_latency=auth_latency,
        answer_latency=answer_latency,
        on_request=_print_request,
    )
    try:
        service.start()
    except OSError as error:
        raise click.ClickException(f"cannot serve on 127.0.0.1:{port}: {error.strerror}; try --port 0") from None
    try:
        click.echo(f"the simulated chat API serves at {service.url}")
        click.echo(f"credentials: {json.dumps({'client_id': client_id, 'client_secret': client_secret})}")
        click.echo(f"invalidate its token: curl -X POST {service.url}{PREFIX}invalidate (list of controls: {PREFIX})")
        threading.Event().wait()
    except KeyboardInterrupt:
        click.echo("\nended")
        sys.exit(130)
    finally:
        service.stop()
