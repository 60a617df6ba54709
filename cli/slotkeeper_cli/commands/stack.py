"""`slotkeeper stack`: make SlotTable match the running executions, also after a restore; print its outputs."""

from __future__ import annotations

import json
import os
import platform
import shlex
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from slotkeeper.slots.dead_holders import weight_and_key
from slotkeeper.slots.executions import CLOSED_STATUSES
from slotkeeper.slots.process import Process
from slotkeeper.slots.processes import Processes
from slotkeeper_cli.account import Account
from slotkeeper_cli.audit_log import audit
from slotkeeper_cli.completion import process_names
from slotkeeper_cli.context import CommandContext, StackCommand, current_context
from slotkeeper_cli.errors import CommandFailed, NotFound, ProblemsFound
from slotkeeper_cli.formatting import count, cut, duration, iso, local_time
from slotkeeper_cli.requests import fields_in
from slotkeeper_cli.slot_control import SlotControl, SlotlessExecution, find_slotless_executions, repair_texts
from slotkeeper_cli.stack_variables import function_variables, shell_lines, shell_variables, write_private

_KEPT_SETTINGS = ("default_weight", "timeout_minutes", "settle_seconds", "rate", "key_limit", "key_limits")
ENV_FILE = Path("build") / "env.json"  # where samconfig.toml expects it

app = typer.Typer(help="Repair or restore SlotTable; print outputs and variables.", no_args_is_help=True)


@app.command("reconcile", cls=StackCommand)
def reconcile(
    process: Annotated[
        list[str] | None, typer.Argument(help="Names of processes; by default all.", autocompletion=process_names)
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit code 5 if something would be changed.")
    ] = False,
) -> None:
    """Make SlotTable match the running executions.

    An execution that runs without a slot is adopted: it becomes a holder, above the limit if necessary. A counter that
    differs from the sum of the holders' weights is set to it. The janitor then releases the slots of dead holders, and
    of leases that have expired. It does so after its grace time and two checks, so that another run some minutes later
    may release more.
    """
    context = current_context()
    account = Account(context.stack)
    control = account.control
    chosen, malformed = ([control.process(name) for name in process], []) if process else account.processes()
    slotless = find_slotless_executions(context.stack, control, chosen)
    dead, unread = _dead(account, chosen)
    report: dict[str, Any] = {
        "adopted": [one.execution for one in slotless],
        "drifted": [one.name for one in chosen if one.has_drifted],
        "dead": dead,
        "expired": [name for one in chosen for name in sorted(one.expired_leases(time.time()))],
        "malformed": [str(one) for one in malformed],
    }
    if unread:
        context.out.note(f"{count(unread, 'holder')} not checked, since many do not run. The janitor checks all.")
    if not check:
        audit("stack reconcile", adopt=report["adopted"], repair=report["drifted"])
        # Counters first, since an adoption increments them.
        for one in chosen:
            if one.has_drifted and not control.processes.repair_counter(one):
                context.out.note(f"{one.name} changed meanwhile, so its counter was not repaired: run this again.")
        processes = {one.name: one for one in chosen}
        report["adopted"] = [one.execution for one in slotless if _adopt(account, one, processes[one.process])]
        report["janitor"] = _janitor(context)
    context.out.result(report, lambda console: _render(console, report, check, is_whole=not unread))
    if malformed:
        which = count(len(malformed), "malformed process was", "malformed processes were")
        raise ProblemsFound(f"{which} neither compared nor changed", *repair_texts(malformed))
    if check and any(report.values()):
        raise ProblemsFound("SlotTable does not match the running executions: run slotkeeper stack reconcile")


def _dead(account: Account, chosen: Iterable[Process]) -> tuple[list[str], int]:
    """Holders whose execution has ended, perhaps seconds ago, and the number of those that were not checked."""
    names = [name for one in chosen for name, holder in sorted(one.holders.items()) if holder.state == "RUNNING"]
    statuses = account.statuses(names)
    is_closed = [name for name in names if name in statuses and statuses[name] in ("", *CLOSED_STATUSES)]
    return is_closed, len(set(names) - statuses.keys())


def _adopt(account: Account, one: SlotlessExecution, process: Process) -> bool:
    """Record an execution as a holder, with its request's weight and key; False if it holds a slot meanwhile."""
    weight, key = weight_and_key(account.execution(one.execution), process)
    target = one.target or process.target
    return account.control.slots.adopt(one.process, one.execution, one.since, target, weight, key=key)


def _janitor(context: CommandContext) -> dict[str, int]:
    """Invoke the janitor; return its counts by metric."""
    context.out.note("Invoking the janitor.")
    answer = context.stack.invoke(context.stack.outputs["JanitorFunctionName"])
    payload = answer["Payload"].read().decode(errors="replace")
    if answer.get("FunctionError"):
        why = fields_in(payload).get("errorMessage", payload)
        raise CommandFailed(f"the janitor failed (see its log): {cut(str(why), 500)}")
    counts: dict[str, int] = json.loads(payload)
    return counts


def _render(console: Console, report: dict[str, Any], check: bool, *, is_whole: bool) -> None:
    kinds = [
        ("adopted", "execution runs without a slot", "executions run without a slot", "adopted"),
        ("drifted", "counter is wrong", "counters are wrong", "repaired"),
        ("dead", "holder's execution has ended", "holders' executions have ended", "left to the janitor"),
        ("expired", "lease has expired", "leases have expired", "left to the janitor"),
    ]
    for key, one, many, done in kinds:
        if report[key]:
            console.print(count(len(report[key]), one, many) + ("." if check else f": {done}."))
            for name in report[key]:
                console.print(f"  {name}")
    if not any(report[key] for key, *_ in kinds) and not report["malformed"]:
        console.print(f"SlotTable matches the running executions{'' if is_whole else ', of those that were checked'}.")
    for name, number in report.get("janitor", {}).items():
        console.print(f"janitor: {name} {number}")


@app.command("outputs", cls=StackCommand)
def outputs(
    export: Annotated[
        bool, typer.Option("--export", help="Print export commands for sh, bash and zsh, to be evaluated.")
    ] = False,
) -> None:
    """Print the stack's outputs: names, URLs and ARNs.

    For the AWS CLI, boto3 and your own code:

        eval "$(slotkeeper stack outputs --export)"

    The variable of an output has the output's name in capitals: REQUEST_QUEUE_URL for RequestQueueUrl. Region and
    SLOTKEEPER_STACK are exported too, and the name given by --profile, but no credentials. With --local also
    SLOTKEEPER_LOCAL, the endpoint, dummy credentials and CHAT_API_URL, and your AWS configuration is hidden: in this
    shell no call reaches an account. Open another shell for your account. If the command fails, so does the eval.
    """
    context = current_context()
    try:
        values, not_deployed = context.stack.reachable_outputs, context.stack.not_deployed
        exported, removed = shell_variables(context.stack, os.environ)
    except Exception:
        if export:
            context.out.console.print("false")  # the shell evaluates no more than this: its status is that of a failure
        raise
    data = {
        "stack": context.stack.name,
        "local": context.stack.is_local,
        "outputs": values,
        "export": exported,
        "unset": removed,
        "not_deployed": [flow.name for flow in not_deployed],
    }
    width = max(map(len, values))
    shown = [f"{name:<{width}}  {value}" for name, value in sorted(values.items())]
    context.out.result(data, shell_lines(exported, removed) if export else shown)
    for flow in not_deployed:
        context.out.note(f"The {flow.name} is not deployed, and its outputs are missing: deploy with {flow.parameter}.")


@app.command("restore", cls=StackCommand)
def restore(
    source: Annotated[
        str, typer.Option("--from", metavar="TABLE", help="Name of the table that was restored alongside SlotTable.")
    ],
) -> None:
    """Copy the missing processes from a restored table.

    They are paused and have no holders. The restored holders are outdated: run slotkeeper stack reconcile to adopt the
    running executions. Leases cannot be adopted: wait for the longest that your code takes, then resume the processes.
    """
    context = current_context()
    control, dynamodb, now = SlotControl(context.stack), context.stack.client("dynamodb"), time.time()
    created, existing, malformed = dict[str, int](), list[str](), list[str]()  # created: when its last lease ends, or 0
    audit("stack restore", source=source)
    try:
        for one in Processes(dynamodb, source).all():
            if not isinstance(one, Process):
                malformed.append(str(one))
                continue
            settings: dict[str, Any] = {name: getattr(one, name) for name in _KEPT_SETTINGS}
            if control.processes.create(one.name, one.slot_limit, one.target, paused=True, **settings):
                created[one.name] = max((held.removable_from or 0 for held in one.holders.values()), default=0)
            else:
                existing.append(one.name)
    except dynamodb.exceptions.ResourceNotFoundException as error:
        raise NotFound(f"there is no table {source!r} in {context.stack.region}: check --from") from error
    leased = {name: end for name, end in created.items() if end > now}
    warnings = {
        name: f" The backup has leases: do not resume it before {local_time(end)}, in {duration(end - now)}."
        for name, end in leased.items()
    }
    lines = [f"{name}: copied, paused.{warnings.get(name, '')}" for name in created]
    lines += [f"{name}: exists already, unchanged." for name in existing]
    lines += [f"malformed, not copied: {text}" for text in malformed]
    if created:
        lines.append(
            "Next: slotkeeper stack reconcile; wait for the longest lease that your code takes, since leases that were "
            "taken after the backup are not known; then slotkeeper process resume."
        )
    data: dict[str, Any] = {"taken": [*created], "left": existing, "malformed": malformed}
    data |= {"leased_until": {name: iso(end) for name, end in leased.items()}}
    context.out.result(data, lines or [f"{source} has no processes."])


@app.command("env", cls=StackCommand)
def env(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="File to write, which may exist; - prints it.")
    ] = ENV_FILE,
) -> None:
    """Write the functions' variables for sam local invoke.

    The file is for its option --env-vars. With --local, the function calls the stack of make local-up DOCKER=yes from
    its container. Otherwise it calls the real stack.
    """
    context = current_context()
    variables = function_variables(context.stack)
    if str(output) == "-":
        context.out.document(variables)
        return
    write_private(output, json.dumps(variables, indent=2) + "\n")
    names = sorted(variables.keys() - {"Parameters"})
    functions = count(len(names), "function", "functions")
    next_step = [f"Wrote {output}: the variables of {functions}. After sam build:", _invocation(context, output)]
    context.out.result({"file": str(output), "functions": names}, next_step)


def _invocation(context: CommandContext, file: Path) -> str:
    """The command that calls the starter with the file, without the operator's credentials if the stack is local."""
    keys = "AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test " if context.stack.is_local else ""
    words = ["sam", "local", "invoke", "StarterFunction", "--region", context.stack.region]
    words += ["-e", "events/starter/happy.json"]
    if file != ENV_FILE:
        words += ["--env-vars", str(file)]
    if platform.machine().lower() in ("x86_64", "amd64"):
        words += ["--parameter-overrides", "Architecture=x86_64"]
    return keys + shlex.join(words)
