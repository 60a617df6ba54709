"""`slotkeeper token`: show or invalidate the shared API token. Commands never read the token itself."""

from __future__ import annotations

import json
import time
from typing import Annotated, Any

import typer
from rich.console import Console

from slotkeeper.chatbot.token import ITEM_NAME
from slotkeeper.token import Timing, TokenStatus
from slotkeeper.token.timing import is_young
from slotkeeper_cli.audit_log import audit
from slotkeeper_cli.context import StackCommand, current_context
from slotkeeper_cli.errors import CommandFailed, CommandRefused, NotFound
from slotkeeper_cli.formatting import duration, local_time, seconds
from slotkeeper_cli.output import table
from slotkeeper_cli.stack_connection import StackConnection, resources
from slotkeeper_cli.token_state import has_refresher, read_token, token_status, token_table, token_timing

app = typer.Typer(help="Show or invalidate the shared API token.", no_args_is_help=True)

_REFRESHER = "TokenRefresherFunction"


@app.command("show", cls=StackCommand)
def show() -> None:
    """Show the state of the token, but never the token itself.

    The state is its generation, age, lock and refusal.
    """
    context = current_context()
    data = read_token(context.stack)
    context.out.result(data, lambda console: _render(console, data))


@app.command("invalidate", cls=StackCommand)
def invalidate(
    generation: Annotated[
        int | None, typer.Option(metavar="N", help="Generation to remove; by default the stored one.")
    ] = None,
    clear_refusal: Annotated[
        bool, typer.Option("--clear-refusal", help="Also clear a refusal, so that a token is requested immediately.")
    ] = False,
) -> None:
    """Remove the stored token, so that a new one is requested.

    The next container that needs a token requests it. A container that has the token in memory uses it until the API
    rejects it, which it does after the next POST /auth. With TokenRefreshSchedule, the refreshing function is invoked
    immediately.
    """
    context = current_context()
    tokens, limits = token_table(context.stack), token_timing(context.stack)
    shown, now = token_status(tokens), time.time()
    drops = _is_to_drop(shown, generation, clear_refusal, limits, now)
    lifts = clear_refusal and shown.refused_until is not None
    if not drops and not lifts:
        raise CommandRefused("there is no refusal to clear and no token to remove. Nothing was changed.")
    removal = f"Remove the token of generation {shown.generation}" + " and clear the refusal" * lifts
    context.confirm(f"{removal if drops else 'Clear the refusal'}?")
    audit("token invalidate", generation=shown.generation, removed=drops, refusal_lifted=lifts)
    if drops and not tokens.drop(ITEM_NAME, shown.generation):
        raise CommandRefused(
            f"a newer token than generation {shown.generation} was stored meanwhile. Nothing was changed."
        )
    lifted = lifts and tokens.clear_refusal(ITEM_NAME, shown.refused_until or 0)
    asked = _invoke_refresher(context.stack)
    lines = [f"The token of generation {shown.generation} is removed."] * drops
    if lifts:
        lines.append(
            "The refusal is cleared." if lifted else "A newer refusal was stored meanwhile: it is not cleared."
        )
    next_user = "The next container that needs a token requests a new one."
    lines.append("The refreshing function was invoked." if asked else next_user)
    context.out.result(
        {"generation": shown.generation, "removed": drops, "refusal_lifted": lifted, "refresher_asked": asked}, lines
    )


def _is_to_drop(shown: TokenStatus, generation: int | None, clear_refusal: bool, limits: Timing, now: float) -> bool:
    """Whether there is a token to remove. Raises NotFound, CommandRefused."""
    if not shown.has_token:
        if clear_refusal:
            return False
        if shown.generation == 0:
            raise NotFound("there is no token yet: the first message to the chatbot requests one. Nothing was changed.")
        raise CommandRefused(
            f"the token of generation {shown.generation} is removed already, and no container has needed a new one. "
            "Nothing was changed."
        )
    if generation not in (None, shown.generation):
        raise CommandRefused(f"generation {shown.generation} is stored, not {generation}. Nothing was changed.")
    if is_young(shown.stored_at, now, limits):
        raise CommandRefused(
            f"the token is {duration(now - shown.stored_at)} old, younger than the {limits.min_interval:g} s between "
            "two refreshes (TokenMinRefreshSeconds), so it may be the new one already. Check with slotkeeper token "
            "show, then run this again. Nothing was changed."
        )
    return True


def _invoke_refresher(stack: StackConnection) -> bool:
    """Invoke the refreshing function, if the stack has one; whether it has."""
    if not has_refresher(stack):
        return False
    names = [one.name for one in resources(stack) if one.logical_id == _REFRESHER]
    if not names:
        raise CommandFailed(f"the stack has TokenRefreshSchedule but no {_REFRESHER}: deploy the stack again")
    stack.client("lambda").invoke(FunctionName=names[0], InvocationType="Event", Payload=json.dumps({}))
    return True


def _render(console: Console, data: dict[str, Any]) -> None:
    made = table("token", data["token_name"])
    made.add_row("generation", str(data["generation"] or "none yet"))
    if data["stored_at"]:
        removed = "" if data["stored"] else "; removed by an operator, and not requested since"
        made.add_row("stored", f"{_local(data['stored_at'])}, {duration(data['age_seconds'])} ago{removed}")
    lock = refusal = "no"
    if held := data["lock"]:
        left = duration(abs(time.time() - seconds(held["expires"])))
        ends = f"expired {left} ago: its holder has died" if held["expired"] else f"expires in {left}"
        lock = f"since {_local(held['since'])}; the lock {ends}"
    if refused := data["refused"]:
        refusal = f"until {_local(refused['until'])}{' (expired)' * refused['over']}: {refused['reason']}"
    made.add_row("being refreshed", lock)
    made.add_row("refused", refusal)
    made.add_row("refreshed by", data["refreshed_by"])
    console.print(made)


def _local(text: str) -> str:
    return local_time(seconds(text))
