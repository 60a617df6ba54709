"""`slotkeeper process`: list, add, change, pause and remove processes while they are in use."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Any

import typer
from botocore.exceptions import ClientError
from rich.console import Console
from rich.text import Text

from slotkeeper.next_step import next_step
from slotkeeper.settings import MAX_WEIGHT, NO_TARGET
from slotkeeper.slots.doorbell import Bell
from slotkeeper.slots.process import MAX_HOLDERS, MAX_SLOT_LIMIT, MalformedProcess, Process
from slotkeeper.slots.processes import MAX_KEY_LIMITS, check_settings
from slotkeeper.slots.rate import Rate
from slotkeeper.slots.request import DEFAULT_PRIORITY, PRIORITIES
from slotkeeper.slots.rows import Listed, QueuedRow
from slotkeeper.slots.targets import MAX_SETTLE_SECONDS, MAX_TIMEOUT_MINUTES
from slotkeeper_cli.account import Account
from slotkeeper_cli.audit_log import audit
from slotkeeper_cli.completion import ProcessName, process_names
from slotkeeper_cli.conditions import of_key
from slotkeeper_cli.context import CommandContext, StackCommand, current_context
from slotkeeper_cli.doctor.job_checks import limit_findings
from slotkeeper_cli.errors import CommandFailed, CommandRefused, NotFound, failure_text
from slotkeeper_cli.formatting import count, duration
from slotkeeper_cli.key_use import key_limit_of
from slotkeeper_cli.keys import checked_key
from slotkeeper_cli.output import table
from slotkeeper_cli.parallel import in_parallel
from slotkeeper_cli.process_queue import ProcessQueue, label
from slotkeeper_cli.rates import parse_rate
from slotkeeper_cli.slot_control import SlotControl, find_slotless_executions, repair_texts
from slotkeeper_cli.target_checks import check_account_and_region, target_problems, target_text

app = typer.Typer(help="Add, list, change, pause and remove processes.", no_args_is_help=True)

MAX_BLOCKED = 10  # blocked requests that a change of the limit names

_LIMIT: dict[str, Any] = {
    "min": 0,
    "max": MAX_SLOT_LIMIT,
    "metavar": "LIMIT",
    "help": f"Most requests that may run at the same time, or the most that their weights may add up to. At most "
    f"{MAX_HOLDERS} run.",
}
_RATE: dict[str, Any] = {
    "metavar": "COUNT/UNIT",
    "help": "Most requests and leases that may start in a second, minute, hour or day, such as 10/minute. A start is "
    "due at even intervals.",
}
Burst = Annotated[
    int,
    typer.Option(
        metavar="N",
        help="With a rate: starts that may follow each other immediately, after a time without any; at most its count.",
    ),
]
Target = Annotated[
    str,
    typer.Option(
        metavar="JOB_OR_ARN",
        help="What its requests run: the name of a Glue job, or the ARN of a Standard state machine of the stack's "
        "account and Region. By default none: the process is for leases only.",
    ),
]
DefaultWeight = Annotated[
    int,
    typer.Option(
        min=1, max=MAX_WEIGHT, metavar="N", help="Weight of a request that states none, in the unit of the limit."
    ),
]
TimeoutMinutes = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=MAX_TIMEOUT_MINUTES,
        metavar="MINUTES",
        help="Minutes after which a Glue run or execution is stopped; by default WorkTimeoutMinutes of the stack.",
    ),
]
SettleSeconds = Annotated[
    int,
    typer.Option(
        min=0,
        max=MAX_SETTLE_SECONDS,
        metavar="SECONDS",
        help="Seconds for which a slot is kept after an execution was aborted or timed out, for work that outlives "
        "it. For state machines only.",
    ),
]
KeyLimit = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=MAX_SLOT_LIMIT,
        metavar="N",
        help="Most requests of each key that may run at the same time, in the unit of the limit; by default any.",
    ),
]
Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="[PROCESS]...", help="Names of the processes.", autocompletion=process_names),
]
Every = Annotated[bool, typer.Option("--all", help="All processes.")]


@app.command("list", cls=StackCommand)
def list_processes() -> None:
    """List processes with limit, slots in use, holders, target."""
    context = current_context()
    processes, malformed = Account(context.stack).processes()
    settings = ("name", "slot_limit", "slots_in_use", "default_weight", "target", "paused")
    listed = [
        {name: getattr(one, name) for name in settings}
        | {"rate": one.rate and str(one.rate), "holders": len(one.holders)}
        | {"key_limit": one.key_limit, "key_limits": dict(one.key_limits), "last_turns": _last_turns(one)}
        for one in processes
    ]
    data = {"processes": listed, "malformed": [str(one) for one in malformed]}

    def render(console: Console) -> None:
        weighted = any(one.default_weight != 1 for one in processes)
        paced = any(one.rate for one in processes)
        columns = [">slots", ">in use", ">holders", *[">default weight"] * weighted, *["rate"] * paced]
        of_keys = [_of_keys(one) for one in processes]
        shown = list(dict.fromkeys(name for each in of_keys for name, cell in each.items() if cell))
        rows = table("process", *columns, *shown, "target", "state")
        for one, keys in zip(processes, of_keys, strict=True):
            state = Text("paused", style="yellow") if one.paused else Text("active")
            numbers = [one.slot_limit, one.slots_in_use, len(one.holders), *[one.default_weight] * weighted]
            rate = [str(one.rate or "any")] * paced
            cells = [*(f"{number:,}" for number in numbers), *rate, *(keys[name] for name in shown)]
            rows.add_row(one.name, *cells, one.target, state)
        if processes:
            console.print(rows)
        elif not malformed:
            console.print("There are no processes. Add one with: slotkeeper process add")
        for text in repair_texts(malformed):
            console.print(f"malformed: {text}", style="red")

    context.out.result(data, render)


def _last_turns(process: Process) -> dict[str, str]:
    """The key of the last start, by priority; without those of which it has none."""
    ranks = ((priority, str(rank)) for rank, priority in enumerate(PRIORITIES))
    return {priority: process.after_keys[rank] for priority, rank in ranks if rank in process.after_keys}


def _of_keys(process: Process) -> dict[str, str]:
    """The cells of a process about its keys, by their headings; empty where it has nothing to show."""
    turns = _last_turns(process).items()
    return {
        ">of each key": "" if process.key_limit is None else f"{process.key_limit:,}",
        "own limits": ", ".join(f"{key} {limit:,}" for key, limit in sorted(process.key_limits.items())),
        "last turn": ", ".join(f"{priority} " * (priority != DEFAULT_PRIORITY) + key for priority, key in turns),
    }


class _Waiting:
    """The queued requests of some processes, of which a question states the number. True if any may wait."""

    def __init__(self, account: Account, processes: Sequence[Process]) -> None:
        pages = {} if len(processes) == 1 else {"max_pages": 1}
        self.listed, self.unread = list[Listed[QueuedRow]](), ""
        try:
            self.listed = in_parallel(lambda one: account.queue(one, **pages), processes)
        except ClientError as error:
            self.unread = failure_text(error)
        self.number = sum(len(each.rows) for each in self.listed)
        self.is_cut = any(each.is_cut for each in self.listed)

    def __bool__(self) -> bool:
        return bool(self.number or self.unread)

    def __str__(self) -> str:
        """Their number as a clause: `30 requests wait`."""
        if self.unread:
            return f"how many requests wait is not known ({self.unread})"
        return f"{'more than ' * self.is_cut}{count(self.number, 'request waits', 'requests wait')}"


@app.command("set-limit", cls=StackCommand)
def set_limit(process: ProcessName, limit: Annotated[int, typer.Argument(**_LIMIT)]) -> None:
    """Set how many requests of a process run at the same time.

    The limit applies from the next request on. If its requests have weights, the limit is the most that their sum may
    be. It asks before it stops all requests, or blocks those whose weight is above the limit.
    """
    context = current_context()
    account = Account(context.stack)
    before = account.control.process(process)
    after, now, waiting = replace(before, slot_limit=limit), time.time(), _Waiting(account, [before])
    queued = [one for listed in waiting.listed for one in ProcessQueue(process, after, listed, now).requests]
    blocked = [one for one in queued if one["weight"] > limit > 0]
    change = f"limit of {process} from {before.slot_limit:,} to {limit:,}"
    if limit == 0 < before.slot_limit:
        context.confirm(f"Set the {change}? Nothing starts then: {waiting}. Running requests continue.")
    elif any(one["weight"] <= before.slot_limit for one in blocked):
        heavier = count(len(blocked), "queued request is", "queued requests are")
        context.confirm(f"Set the {change}? {heavier} heavier than that: blocked until it is raised.")
    audit("process set-limit", process=process, before=before.slot_limit, after=limit)
    account.control.operations.set_limit(process, limit)
    _warn_of_limit(context, account, after)
    heavy = {name: holder.weight for name, holder in after.holders.items() if limit < holder.weight != 1}
    lines = [f"{process}: {before.slot_limit} -> {limit} slots."]
    if after.held_weight > limit:
        used = f"{after.held_weight:,} in use by {count(len(after.holders), 'holder')}"
        lines.append(f"{used}: no request is admitted until enough of them have ended.")
    if heavy:
        ids = account.request_ids([(process, name) for name in heavy])
        named = (f"{ids.get(name, name)} (weight {weight})" for name, weight in heavy.items())
        lines.append(f"Above the limit alone: {', '.join(named)}.")
    lines += _blocked_lines(process, blocked)
    data = {"process": process, "before": before.slot_limit, "after": limit, "holders": len(before.holders)}
    data |= {"in_use": after.slots_in_use, "holders_above_limit": heavy, "blocked": blocked}
    context.out.result(data, lines)


def _blocked_lines(process: str, blocked: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield from (f"Blocked: {label(one)}; it waits until the limit is raised." for one in blocked[:MAX_BLOCKED])
    if (more := len(blocked) - MAX_BLOCKED) > 0:
        yield f"Blocked: {count(more, 'other request')}. List them with: {next_step('request list', process)}"


def _warn_of_limit(context: CommandContext, account: Account, process: Process) -> None:
    """Print why fewer requests may run than the limit allows, and what to do."""
    problems, malformed = list[str](), account.processes()[1]
    try:
        problems += [f"{each.what}: {each.why}" for each in limit_findings(account, process)]
    except ClientError as error:
        problems.append(f"whether {process.target} allows this limit could not be read ({failure_text(error)})")
    if 0 < process.slot_limit < process.default_weight != 1:
        weight = process.default_weight
        problems.append(
            f"the default weight {weight} is above the limit {process.slot_limit}, so requests without a weight wait: "
            f"raise the limit with {next_step('process set-limit', process.name, weight)}"
        )
    problems += [f"its slots for {process.target} are not counted: {text}" for text in repair_texts(malformed)]
    for problem in problems:
        context.out.note(f"Warning: {problem.removesuffix('.')}.")


@app.command("set-key-limit", cls=StackCommand)
def set_key_limit(
    process: ProcessName,
    limit: Annotated[
        str,
        typer.Argument(
            metavar="LIMIT", help="Most requests of a key that run at the same time, in the unit of the limit; or none."
        ),
    ],
    key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help=f"Only of this key, as its own limit. {MAX_KEY_LIMITS} keys may have one."),
    ] = None,
) -> None:
    """Set how many requests of each key run at the same time.

    `slotkeeper process set-key-limit sales 5` lets each key have five slots, and all requests without a key as well.
    `slotkeeper process set-key-limit sales 20 --key acme` gives one key a limit of its own. With none, as in
    `slotkeeper process set-key-limit sales none --key acme`, the limit of each key applies to it again; without --key,
    only the limit of the process applies.

    It applies from the next request on, and asks before it stops the requests of a key, or blocks those whose weight is
    above the limit.
    """
    context = current_context()
    after, own = key_limit_of(limit), checked_key(key)
    account = Account(context.stack)
    before, now = account.control.process(process), time.time()
    former = before.key_limits.get(own) if own else before.key_limit
    if own and after is not None and former is None and len(before.key_limits) >= MAX_KEY_LIMITS:
        step = next_step("process set-key-limit", process, "none", key=next(iter(before.key_limits)))
        raise CommandRefused(
            f"{len(before.key_limits)} keys of {process} have a limit of their own, which is the most. Remove one, as "
            f"with {step}. Nothing was changed."
        )
    changed = replace(before, key_limit=after)
    if own:
        others = {each: limit for each, limit in before.key_limits.items() if each != own}
        changed = replace(before, key_limits=others if after is None else {**others, own: after})
    waiting = _Waiting(account, [before]).listed
    queued = [each for listed in waiting for each in ProcessQueue(process, changed, listed, now).requests]
    blocked = [each for each in queued if each["reasons"][0]["condition"] == "key limit"]
    limits = [before.limit_of(each["key"] or "") for each in blocked]
    new = sum(most is None or each["weight"] <= most for each, most in zip(blocked, limits, strict=True))
    whose, are = of_key(own) if own else "each key", count(new, "queued request is", "queued requests are")
    change = f"limit of {whose} of {process} from {_or_none(former)} to {_or_none(after)}"
    if after == 0 != former:
        context.confirm(f"Set the {change}? Nothing of it starts then: {are} blocked. Running requests continue.")
    elif new:
        context.confirm(f"Set the {change}? {are} heavier than that: blocked until it is raised.")
    audit("process set-key-limit", process=process, key=key, before=former, after=after)
    try:
        account.control.operations.set_key_limit(process, after, own)
    except ValueError as error:  # another command came between
        raise CommandRefused(f"{error}. Nothing was changed.") from error
    data = {"process": process, "key": key, "before": former, "after": after, "blocked": blocked}
    lines = [f"{process}: limit of {whose}: {_or_none(former)} -> {_or_none(after)}."]
    context.out.result(data, [*lines, *_blocked_lines(process, blocked)])


def _or_none(limit: int | None) -> str:
    return "none" if limit is None else f"{limit:,}"


@app.command("set-rate", cls=StackCommand)
def set_rate(
    process: ProcessName,
    rate: Annotated[
        str, typer.Argument(metavar="RATE", help="COUNT/UNIT with the unit second, minute, hour or day; or none.")
    ],
    burst: Burst = 1,
) -> None:
    """Set how many requests and leases may start in a time.

    It applies from the next start on, and counts from then on. With none, only the limit counts. It asks before it
    delays requests that wait.
    """
    context = current_context()
    after = None if rate == "none" else _rate_of(rate, burst, "Nothing was changed.")
    account = Account(context.stack)
    before = account.control.process(process)
    waiting = _Waiting(account, [before])
    if after and waiting and (before.rate is None or after.interval > before.rate.interval):
        last = duration(max(0, waiting.number - after.burst) * after.interval / 1000)
        context.confirm(
            f"Set the rate of {process} from {before.rate or 'any'} to {after}? {waiting}, and the last of them starts "
            f"in {last} at the earliest."
        )
    shown = {"before": before.rate and str(before.rate), "after": None if after is None else rate}
    audit("process set-rate", process=process, **shown, burst=burst)
    account.control.operations.set_rate(process, after)
    data = {"process": process, **shown, "burst": burst}
    context.out.result(data, f"{process}: {before.rate or 'any rate'} -> {after or 'any rate'}.")


def _rate_of(text: str, burst: int, effect: str) -> Rate:
    try:
        return parse_rate(text, burst)
    except ValueError as error:
        raise typer.BadParameter(f"a rate {error}. {effect}") from error


@app.command("pause", cls=StackCommand)
def pause(process: Names = None, every: Every = False) -> None:
    """Stop admitting requests of processes.

    Running requests continue. It asks if requests wait.
    """
    context = current_context()
    account = Account(context.stack)
    chosen, malformed = _chosen(account, process, every)
    running = {one.name: len(one.holders) for one in chosen}
    if waiting := _Waiting(account, [one for one in chosen if not one.paused]):
        named = chosen[0].name if len(chosen) == 1 else count(len(chosen), "process", "processes")
        context.confirm(
            f"Pause {named}? Nothing starts then until slotkeeper process resume: {waiting}; "
            f"{count(sum(running.values()), 'holder continues', 'holders continue')}."
        )
    for one in chosen:
        audit("process pause", process=one.name)
        account.control.operations.pause(one.name)
    lines = [f"{name}: paused; {count(n, 'holder continues', 'holders continue')}." for name, n in running.items()]
    context.out.result({"paused": list(running), "running": running}, lines)
    _fail_for(malformed, "paused")


@app.command("resume", cls=StackCommand)
def resume(
    process: Names = None,
    every: Every = False,
    force: Annotated[bool, typer.Option("--force", help="Resume although executions run without a slot.")] = False,
) -> None:
    """Admit requests of paused processes again.

    Refused while executions run without a slot, as after a restore: run slotkeeper stack reconcile first.
    """
    context = current_context()
    account = Account(context.stack)
    control = account.control
    chosen, malformed = _chosen(account, process, every)
    if not force and (slotless := find_slotless_executions(context.stack, control, chosen)):
        names = ", ".join(sorted({one.process for one in slotless}))
        raise CommandRefused(
            f"{count(len(slotless), 'execution runs', 'executions run')} without a slot ({names}): more "
            "requests would run than the limit allows. Run slotkeeper stack reconcile first, or give --force. Nothing "
            "was changed."
        )
    for one in chosen:
        audit("process resume", process=one.name, forced=force)
        control.operations.resume(one.name)
    names_resumed = [one.name for one in chosen]
    context.out.result({"resumed": names_resumed}, [f"{name}: resumed." for name in names_resumed])
    _fail_for(malformed, "resumed")


@app.command("add", cls=StackCommand)
def add(
    process: Annotated[str, typer.Argument(metavar="PROCESS", help="Name of the process.")],
    limit: Annotated[int, typer.Option("--limit", **_LIMIT)],
    target: Target = NO_TARGET,
    default_weight: DefaultWeight = 1,
    timeout_minutes: TimeoutMinutes = None,
    settle_seconds: SettleSeconds = 0,
    rate: Annotated[str | None, typer.Option(**_RATE)] = None,
    burst: Burst = 1,
    key_limit: KeyLimit = None,
    paused: Annotated[
        bool, typer.Option("--paused", help="Add it paused: it admits no request until slotkeeper process resume.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Add it although its target does not exist or does not pass the checks.")
    ] = False,
) -> None:
    """Add a process.

    Its requests can be submitted immediately, without a deployment.
    """
    context = current_context()
    account = Account(context.stack)
    control = account.control
    own: dict[str, Any] = {"timeout_minutes": timeout_minutes, "settle_seconds": settle_seconds, "key_limit": key_limit}
    paced = None if rate is None else _rate_of(rate, burst, "Nothing was added.")
    if rate is None and burst != 1:
        raise typer.BadParameter("--burst needs --rate. Nothing was added.")
    try:
        check_settings(process, limit, target, default_weight, **own)
        check_account_and_region(context.stack, target)
    except ValueError as error:
        raise typer.BadParameter(f"{error}. Nothing was added.") from error
    try:
        problems = target_problems(context.stack, target)
    except ValueError as error:
        raise CommandRefused(f"{error}. Nothing was added.") from error
    if problems and not force:
        raise CommandRefused("; ".join(problems) + ". Give --force to add the process anyway. Nothing was added.")
    # Before the audit line: process repair shows its settings as those of the process.
    if control.processes.read_item(process):
        raise _exists(control, process)
    settings = {"limit": limit, "default_weight": default_weight, "target": target, "paused": paused}
    audit("process add", process=process, **settings, **own, rate=rate, burst=burst, forced=bool(problems))
    own |= {"rate": paced}
    if not control.processes.create(process, limit, target, paused, default_weight, **own):
        raise _exists(control, process)
    # Requests that were sent before are queued, if they have not been rejected yet.
    control.doorbell.ring(Bell(process))
    _warn_of_limit(context, account, control.process(process))
    data = {"process": process, "slot_limit": limit, "default_weight": default_weight, "target": target, **own}
    data |= {"rate": paced and str(paced)}
    each_key = "" if key_limit is None else f", at most {key_limit:,} of them for each key"
    text = f"{process} has {count(limit, 'slot')} for {target_text(target)}{each_key}"
    text += "." if not paused else ", and is paused." if each_key else " and is paused."
    context.out.result(data | {"paused": paused, "problems": problems}, text)


def _exists(control: SlotControl, process: str) -> CommandRefused:
    """The error for a process that exists already; CommandFailed is raised if its item is malformed."""
    control.process(process)
    return CommandRefused(
        f"process {process!r} exists already: change it with slotkeeper process set-limit, "
        "set-key-limit, set-rate, pause and resume. Nothing was changed."
    )


@app.command("remove", cls=StackCommand)
def remove(
    process: ProcessName,
    timeout: Annotated[
        float, typer.Option(metavar="MINUTES", help="Minutes to wait for running requests.", min=0)
    ] = 60,
) -> None:
    """Remove a process after its running requests have ended.

    Its queued requests are rejected. The process is paused first, and stays paused if you interrupt the wait.
    `slotkeeper failed redrive` queues a rejected request again, after a process of this name has been added.
    """
    context = current_context()
    account = Account(context.stack)
    control, before = account.control, account.control.process(process)
    waiting = _Waiting(account, [before])
    context.confirm(
        f"Remove process {process}? It is paused first, and removed when its {count(len(before.holders), 'holder')} "
        f"({count(before.slots_in_use, 'slot')}) ended, for which the command waits {duration(timeout * 60)} at most. "
        f"Queued requests are rejected as UnknownProcess: {waiting}."
    )
    audit("process remove", process=process, holders=sorted(before.holders))
    control.operations.pause(process)
    _drain(context, control, process, timeout * 60)
    if not control.operations.remove(process):
        raise CommandFailed(f"process {process} was resumed meanwhile, so it was not removed: run this again")
    queued = None if waiting.unread else waiting.number
    data = {"removed": process, "queued": queued, "is_cut": waiting.is_cut}
    lines = [f"{process} is removed."]
    if waiting:
        lines[0] += " Its queued requests are rejected as UnknownProcess. To run them:"
        lines.append(f"  {_adding(before)}")
        for key, limit in before.key_limits.items():
            lines.append(f"  {next_step('process set-key-limit', process, limit, key=key)}")
        lines.append(f"  {next_step('failed redrive', process=process, code='UnknownProcess')}")
    context.out.result(data, lines)


def _adding(process: Process) -> str:
    """The command that adds a process with the settings that it has."""
    target, weight, rate = process.target, process.default_weight, process.rate
    return next_step(
        "process add",
        process.name,
        limit=process.slot_limit,
        target=None if target == NO_TARGET else target,
        default_weight=None if weight == 1 else weight,
        timeout_minutes=process.timeout_minutes,
        settle_seconds=process.settle_seconds or None,
        key_limit=process.key_limit,
        rate=rate and str(replace(rate, burst=1)),
        burst=rate.burst if rate and rate.burst > 1 else None,
    )


def _drain(context: CommandContext, control: SlotControl, process: str, seconds: float) -> None:
    """Wait until a process has no holders. Raises CommandFailed when the time has passed."""
    until = time.monotonic() + seconds
    total = 0
    with context.out.progress() as progress:
        task = progress.add_task(f"{process}: ended", total=None)
        while holders := len(control.process(process).holders):
            total = max(total, holders)
            progress.update(task, total=total, completed=total - holders)
            if time.monotonic() >= until:
                raise CommandFailed(
                    f"{count(holders, 'holder')} of {process} still running after {duration(seconds)}: the process was "
                    "not removed, and stays paused. Run this again, or slotkeeper process resume."
                )
            time.sleep(min(2.0, max(0.1, until - time.monotonic())))


def _chosen(account: Account, names: list[str] | None, every: bool) -> tuple[list[Process], list[MalformedProcess]]:
    """The processes to change, and with --all those that are malformed."""
    if bool(names) == every:
        raise typer.BadParameter("name one or more processes, or give --all")
    if names:
        return [account.process(name) for name in names], []
    processes, malformed = account.processes()
    if not processes and not malformed:
        raise NotFound("there are no processes. Add one with: slotkeeper process add")
    return processes, malformed


def _fail_for(malformed: list[MalformedProcess], done: str) -> None:
    if malformed:
        raise CommandFailed(f"{count(len(malformed), 'process', 'processes')} not {done}", *repair_texts(malformed))
