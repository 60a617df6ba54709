"""The commands `python -m local up`, `down` and `status`."""

from pathlib import Path

import click
from rich.console import Console

from local import processes
from local.aws import EmbeddedAws, EngineError
from local.deployment import DeploymentError
from local.environment import ROOT

STATE_DIR = ROOT / "build" / "local"
console = Console(highlight=False, soft_wrap=True)


def say(message: str) -> None:
    """One progress line."""
    console.print(f"[dim]local:[/dim] {message}")


@click.group()
def main() -> None:
    """Run the embedded AWS with the project's template deployed to it."""


def _parameter(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    parameters = {}
    for value in values:
        name, separator, text = value.partition("=")
        if not separator or not name:
            raise click.BadParameter(f"{value!r} is not of the form Name=value")
        parameters[name] = text
    return parameters


@main.command()
@click.option("--port", default=0, type=click.IntRange(0, 65535), help="Port on 127.0.0.1; 0 takes a free one.")
@click.option("--parameter", callback=_parameter, multiple=True, metavar="NAME=VALUE", help="A template parameter.")
def up(port: int, parameter: dict[str, str]) -> None:
    """Start it, deploy template.yaml, and leave it running."""
    try:
        aws = EmbeddedAws.attach(STATE_DIR)
    except EngineError:
        aws = None
    try:
        if aws is not None:
            say(f"already running at {aws.endpoint}; deploying again")
            started = False
        else:
            aws = EmbeddedAws.start(STATE_DIR, port=port, detached=True, say=say)
            started = True
        try:
            outputs = aws.deploy(parameter, say=say)
        except BaseException:
            if started:
                aws.stop()
            raise
    except (EngineError, DeploymentError) as error:
        raise click.ClickException(str(error)) from None
    aws.detach()
    say(f"ready at {aws.endpoint}; {len(outputs)} outputs in {_shown(STATE_DIR / 'outputs.json')}")


@main.command()
def down() -> None:
    """End the engine that `up` started, and what it started."""
    try:
        aws = EmbeddedAws.attach(STATE_DIR)
    except EngineError:
        (STATE_DIR / "engine.pid").unlink(missing_ok=True)
        say("not running")
        return
    aws.stop()
    say(f"ended the engine at {aws.endpoint}")


@main.command()
def status() -> None:
    """Say whether it runs, where, and what is deployed."""
    try:
        aws = EmbeddedAws.attach(STATE_DIR)
    except EngineError as error:
        say(str(error))
        raise SystemExit(1) from None
    count = len(processes.session_members(aws.pid))
    say(f"running at {aws.endpoint} (process {aws.pid}, {count} processes in all)")
    for name, value in sorted(aws.outputs.items()):
        console.print(f"  {name} = {value}")
    if not aws.outputs:
        say("nothing is deployed yet")


def _shown(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
