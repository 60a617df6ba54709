"""`slotkeeper retry breaker` and `slotkeeper retry limit`: circuit breakers and concurrency limits of downstreams."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer
from rich.console import Console

from slotkeeper.next_step import ToFillIn, next_step
from slotkeeper.retry.deferral import MAX_SPREAD_SECONDS
from slotkeeper.retry.downstream import rules
from slotkeeper.retry.downstream.downstreams import DEFAULT, MalformedHealth, check_name
from slotkeeper.retry.downstream.health import Health, State
from slotkeeper_cli.audit_log import audit
from slotkeeper_cli.completion import downstream_names
from slotkeeper_cli.context import CommandContext, StackCommand, current_context
from slotkeeper_cli.errors import NotFound
from slotkeeper_cli.formatting import count, did_you_mean, duration
from slotkeeper_cli.retries import DownstreamControl, details, print_details

app = typer.Typer(help="Show, open or close the circuit breaker of a downstream.", no_args_is_help=True)

MAX_WHY = 200  # characters; the worker rewrites the item, with the last changes, after most attempts


def _name(text: str | None) -> str | None:
    try:
        return text if text is None else check_name(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _reason(text: str) -> str:
    if not text.strip() or len(text) > MAX_WHY:
        raise typer.BadParameter(f"a reason has 1 to {MAX_WHY} characters, got {len(text)}")
    return text


_NAME: dict[str, Any] = {"callback": _name, "autocompletion": downstream_names}
Name = Annotated[str, typer.Argument(metavar="[DOWNSTREAM]", help="Name of the downstream.", **_NAME)]
Why = Annotated[str, typer.Option(callback=_reason, help="Reason, for the list of changes and the audit line.")]


@app.command("show", cls=StackCommand)
def show(
    downstream: Annotated[
        str | None,
        typer.Argument(metavar="[DOWNSTREAM]", help="Name of one downstream; by default all known.", **_NAME),
    ] = None,
) -> None:
    """Show breakers, limits, retry budgets and the last changes.

    The known downstreams are those that DownstreamTable or the retry policy names, and `default`.
    """
    context = current_context()
    control, now = _control(context, downstream), time.time()
    if downstream:
        _require(control, downstream)
    shown = {downstream: control.healths[downstream]} if downstream else control.healths
    data: dict[str, list[Any]] = {
        "downstreams": [
            details(name, health, control.settings(name), now)
            for name, health in shown.items()
            if isinstance(health, Health)
        ],
        "malformed": [str(error) for error in shown.values() if isinstance(error, MalformedHealth)],
    }

    def render(console: Console) -> None:
        for one in data["downstreams"]:
            print_details(console, one, now)
        for text in data["malformed"]:
            console.print(f"malformed: {text}", style="red")

    context.out.result(data, render)


@app.command("open", cls=StackCommand)
def open_breaker(why: Why, downstream: Name = DEFAULT) -> None:
    """Open a breaker until you close it.

    No attempt begins, and messages spend none: they are held back in WorkQueue. Attempts that have started continue.
    """
    context = current_context()
    control = _control(context, downstream)
    health = _health(control, downstream)
    context.confirm(f"{_unknown(control, downstream)}Open the breaker of downstream {downstream!r} until you close it?")
    by = _audit(context, "retry breaker open", downstream, health, why=why)
    control.table.change(downstream, lambda health: (rules.force_open(health, time.time(), why, by), None))
    context.out.result(
        {"downstream": downstream, "state": State.OPEN, "forced_open": True},
        [
            f"{downstream}: the breaker is open. Messages are held back and spend no attempt, until: "
            + next_step("retry breaker close", downstream, why=ToFillIn("TEXT")),
            "A request that is held back for longer than the policy's largest maximum age, "
            f"{duration(control.policy.max_age)}, is dead-lettered with code TooOld.",
        ],
    )


@app.command("close", cls=StackCommand)
def close_breaker(why: Why, downstream: Name = DEFAULT) -> None:
    """Close a breaker.

    It starts with one caller, and opens again by its own rules. After a repair this saves the wait for the next probe.
    A breaker that an operator has opened does not close by itself.
    """
    context = current_context()
    control = _control(context, downstream)
    health = _health(control, downstream)
    _require(control, downstream)
    closes = health.breaker.state != State.CLOSED
    if closes:
        context.confirm(f"Close the breaker of downstream {downstream!r}, so that messages are attempted again?")
        by = _audit(context, "retry breaker close", downstream, health, why=why)

        def decide(health: Health) -> tuple[Health, bool]:
            # Closing a breaker that is closed would set the limit to one caller.
            is_closed = health.breaker.state == State.CLOSED
            return (health, False) if is_closed else (rules.force_closed(health, time.time(), why, by), True)

        _, health, closes = control.table.change(downstream, decide)

    def render(console: Console) -> None:
        if not closes:
            console.print(f"{downstream}: the breaker is closed already. Nothing was changed.")
            return
        _print(console, control, downstream, health)
        within = duration(control.settings(downstream).breaker.recovery + MAX_SPREAD_SECONDS)
        console.print(f"Messages that were held back return within about {within}.")

    data = {"downstream": downstream, "state": health.breaker.state, "changed": closes}
    context.out.result(data, render)


def limit_callers(
    callers: Annotated[str, typer.Argument(metavar="N|auto", help="Most concurrent attempts, from 1; or auto.")],
    downstream: Annotated[str, typer.Option(help="Name of the downstream.", **_NAME)] = DEFAULT,
) -> None:
    """Set the concurrency limit of a downstream, or let it adapt.

    It is the number of attempts that may call the downstream at the same time. The number replaces the adaptive limit,
    and no automatic change touches it.
    """
    wanted = _callers(callers)
    context = current_context()
    control = _control(context, downstream)
    health = _health(control, downstream)
    if unknown := _unknown(control, downstream):
        context.confirm(f"{unknown}Set its limit?")
    if health.concurrency.limit_set != wanted:
        _audit(context, "retry limit", downstream, health, before=health.concurrency.limit_set, after=wanted)
        _, health, _ = control.table.change(downstream, lambda health: (rules.set_limit(health, wanted), None))
    if wanted and wanted > control.most:
        context.out.note(
            f"Warning: the event source starts at most {count(control.most, 'attempt')} at the same time: "
            "WorkerConcurrency."
        )
    permitted = details(downstream, health, control.settings(downstream), time.time())["limit"]
    data = {"downstream": downstream, "limit_set": wanted, "limit": permitted}
    context.out.result(data, lambda console: _print(console, control, downstream, health))


def _callers(text: str) -> int | None:
    if text == "auto":
        return None
    if not (text.isascii() and text.isdecimal() and int(text) >= 1):
        raise typer.BadParameter(f"the limit must be a whole number from 1, or auto, got {text!r}")
    return int(text)


def _control(context: CommandContext, downstream: str | None) -> DownstreamControl:
    control = DownstreamControl(context.stack)
    if downstream:
        control.add_unlisted(downstream)
    if control.policy_problem:
        context.out.note(
            f"Warning: {control.policy_problem}. This command uses the built-in policy, and a worker the one that it "
            "read last."
        )
    return control


def _print(console: Console, control: DownstreamControl, downstream: str, health: Health) -> None:
    """Print a downstream after a change, as `show` does."""
    now = time.time()
    print_details(console, details(downstream, health, control.settings(downstream), now), now)


def _health(control: DownstreamControl, downstream: str) -> Health:
    """The health of a downstream, of a new one if it is not known. Raises MalformedHealth."""
    health = control.healths.get(downstream, Health())
    if isinstance(health, MalformedHealth):
        raise health
    return health


def _require(control: DownstreamControl, downstream: str) -> None:
    if downstream not in control.healths:
        known, similar = ", ".join(control.healths), did_you_mean(downstream, control.healths)
        raise NotFound(f"there is no downstream {downstream!r}.{similar} The known downstreams are: {known}")


def _unknown(control: DownstreamControl, downstream: str) -> str:
    """A sentence if a downstream is not known; it may be one that was not called yet."""
    if downstream in control.healths:
        return ""
    return (
        f"No downstream {downstream!r} has been called, and the policy does not name it."
        f"{did_you_mean(downstream, control.healths)} The known downstreams are: {', '.join(control.healths)}. "
    )


def _audit(context: CommandContext, action: str, downstream: str, health: Health, **details: Any) -> str:
    """Write the audit line; return the operator's name, `user/anna`, without the account."""
    audit(action, downstream=downstream, state=health.breaker.state, **details)
    return context.stack.caller.split(":", 5)[-1]
