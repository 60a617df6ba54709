"""`slotkeeper token`: the state of the token that the chatbot's instances share. The token itself is not even read."""

from __future__ import annotations

import json
import time
from typing import Annotated, Any

import typer
from rich.console import Console

from slotkeeper.chatbot.token import ITEM_NAME, timing
from slotkeeper.token import MalformedToken, Timing, TokenStatus, TokenTable
from slotkeeper.token.timing import is_young
from slotkeeper_cli.audit import audit
from slotkeeper_cli.common import StackCommand, cli
from slotkeeper_cli.errors import Failed, NotFound, Refused
from slotkeeper_cli.output import table
from slotkeeper_cli.resources import resources
from slotkeeper_cli.stack import Stack
from slotkeeper_cli.words import duration, iso, local_time

app = typer.Typer(help="The token that the chatbot's instances share.", no_args_is_help=True)

_REFRESHER = "TokenRefresherFunction"


def show() -> None:
    """The token's generation and age, who refreshes it, and whether the API refuses. Never the token."""
    here = cli()
    shown, now = _look(_table(here.stack)), time.time()
    data = _told(here.stack, shown, now)
    here.out.result(data, lambda console: _render(console, data, shown, now))


def invalidate(
    generation: Annotated[
        int | None, typer.Option(help="Only if this one is stored; without it, the one that is stored now.")
    ] = None,
    clear_refusal: Annotated[
        bool, typer.Option("--clear-refusal", help="Also let the API be asked again at once, if it has refused.")
    ] = False,
) -> None:
    """Remove the stored token, so that whoever looks for one next asks the API for a new one, once.

    A container that has it in its memory goes on with it until the API refuses it, which the new one's POST /auth sees
    to. Where a function refreshes on a schedule, it is asked to do so now.
    """
    here = cli()
    tokens, limits = _table(here.stack), _timing(here.stack)
    shown, now = _look(tokens), time.time()
    drops = _is_to_drop(shown, generation, clear_refusal, limits, now)
    lifts = clear_refusal and shown.refused_until is not None
    if not drops and not lifts:
        raise Refused("there is no refusal to clear, and no token to remove: nothing was changed")
    here.confirm(_question(drops, lifts, shown))
    audit("token invalidate", generation=shown.generation, removed=drops, refusal_lifted=lifts)
    if drops and not tokens.drop(ITEM_NAME, shown.generation):
        raise Refused(f"another token was stored this very moment, in place of generation {shown.generation}: it stays")
    lifted = lifts and tokens.clear_refusal(ITEM_NAME, shown.refused_until or 0)
    asked = _ask_the_refresher(here.stack)
    data = {
        "generation": shown.generation,
        "removed": drops,
        "refusal_lifted": lifted,
        "refresher_asked": asked,
    }

    def render(console: Console) -> None:
        if drops:
            console.print(f"The token of generation {shown.generation} is removed.")
        if lifts:
            console.print(
                "The API may be asked again." if lifted else "A newer refusal stands: the API was asked again."
            )
        console.print(
            "The function that refreshes was asked for a new one." if asked
            else "The next container that looks for a token asks the API for a new one."
        )  # fmt: skip

    here.out.result(data, render)


def _is_to_drop(shown: TokenStatus, generation: int | None, clear_refusal: bool, limits: Timing, now: float) -> bool:
    """Whether there is a token to remove. Raises NotFound, Refused."""
    if not shown.has_token:
        if clear_refusal:
            return False
        if shown.generation == 0:
            raise NotFound("there is no token yet: the first message asks for one")
        raise Refused(
            f"the token of generation {shown.generation} is removed already, and nobody has asked for another"
        )
    if generation not in (None, shown.generation):
        raise Refused(f"generation {shown.generation} is stored, not {generation}: nothing was removed")
    if is_young(shown.stored_at, now, limits):
        raise Refused(
            f"the token is {duration(now - shown.stored_at)} old, younger than the {limits.min_interval:g} s between "
            "two refreshes (TokenMinRefreshSeconds): it may be a new one already; look, then give the command again"
        )
    return True


def _question(drops: bool, lifts: bool, shown: TokenStatus) -> str:
    what = [f"Remove the token of generation {shown.generation}"] * drops + ["let the API be asked again"] * lifts
    text = " and ".join(what)
    return f"{text[0].upper()}{text[1:]}?"


def _look(tokens: TokenTable) -> TokenStatus:
    try:
        return tokens.status(ITEM_NAME)
    except MalformedToken as error:
        raise Failed(f"{error}: somebody has edited it; delete the item, and the next message makes it again") from None


def _table(stack: Stack) -> TokenTable:
    return TokenTable(stack.client("dynamodb"), stack.outputs["TokenTableName"])


def _timing(stack: Stack) -> Timing:
    return timing(float(stack.parameters.get("TokenMinRefreshSeconds") or 5))


def _has_refresher(stack: Stack) -> bool:
    return bool(stack.parameters.get("TokenRefreshSchedule"))


def _ask_the_refresher(stack: Stack) -> bool:
    """Asks the function that refreshes, where the stack has one."""
    if not _has_refresher(stack):
        return False
    names = [one.name for one in resources(stack) if one.logical_id == _REFRESHER]
    if not names:
        raise Failed(f"the stack has no {_REFRESHER}, though it was deployed with TokenRefreshSchedule")
    stack.client("lambda").invoke(FunctionName=names[0], InvocationType="Event", Payload=json.dumps({}))
    return True


def _told(stack: Stack, shown: TokenStatus, now: float) -> dict[str, Any]:
    limits = _timing(stack)
    lock, refused = None, None
    if shown.lock_expires is not None:
        # Every lock of this stack is taken for the same time.
        since = shown.lock_expires - limits.lease
        lock = {"since": iso(since), "expires": iso(shown.lock_expires), "expired": now >= shown.lock_expires}
    if shown.refused_until is not None:
        binds = 0 < shown.refused_until - now <= limits.longest_refusal
        refused = {"until": iso(shown.refused_until), "reason": shown.refused_reason, "over": not binds}
    return {
        "token_name": ITEM_NAME,
        "generation": shown.generation,
        "stored": shown.has_token,
        "stored_at": iso(shown.stored_at) if shown.generation else None,
        "age_seconds": int(now - shown.stored_at) if shown.generation else None,
        "lock": lock,
        "refused": refused,
        "refreshed_by": "schedule" if _has_refresher(stack) else "whoever needs it",
    }


def _render(console: Console, data: dict[str, Any], shown: TokenStatus, now: float) -> None:
    made = table("token", data["token_name"])
    made.add_row("generation", str(shown.generation) if shown.generation else "none yet")
    if shown.generation:
        gone = "" if shown.has_token else "; removed by an operator, and not asked for since"
        stored = f"{local_time(shown.stored_at)}, {duration(now - shown.stored_at)} ago{gone}"
        made.add_row("stored", stored)
    if shown.lock_expires is not None:
        over = now >= shown.lock_expires
        left = duration(abs(now - shown.lock_expires))
        ends = f"ended {left} ago: its holder has died" if over else f"{left} left"
        made.add_row("being refreshed", f"since {data['lock']['since']}, lock {ends}")
    else:
        made.add_row("being refreshed", "no")
    if data["refused"]:
        past = " (over)" if data["refused"]["over"] else ""
        made.add_row("refused", f"until {local_time(shown.refused_until or 0)}{past}: {shown.refused_reason}")
    else:
        made.add_row("refused", "no")
    made.add_row("refreshed by", data["refreshed_by"])
    console.print(made)


app.command("show", cls=StackCommand)(show)
app.command("invalidate", cls=StackCommand)(invalidate)
