"""`slotkeeper status`: what needs attention, busy and waiting processes, idle ones; or one process with its holders."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from slotkeeper.next_step import next_step
from slotkeeper.slots.targets import kind_of
from slotkeeper_cli.account import Account
from slotkeeper_cli.attention import attention
from slotkeeper_cli.completion import process_names
from slotkeeper_cli.conditions import of_key
from slotkeeper_cli.context import current_context
from slotkeeper_cli.doctor.health_checks import finding_lines
from slotkeeper_cli.formatting import cut, duration, local_time, seconds
from slotkeeper_cli.holders import holders_text, in_use_text, is_dead, lease_text
from slotkeeper_cli.key_use import MAX_SHOWN, rest_text, use_text
from slotkeeper_cli.output import Block, styled, table, whole, width_of, wrapped
from slotkeeper_cli.process_queue import waited
from slotkeeper_cli.refreshes import show_refreshes
from slotkeeper_cli.stack_connection import DEAD_LETTER_QUEUES
from slotkeeper_cli.status import not_deployed_text
from slotkeeper_cli.status import status as read_status
from slotkeeper_cli.target_checks import target_text

_BAR = 10  # characters of a bar of slots
_ID = 30  # characters of a request's id in a text, and the shortest of a process's name, on a narrow terminal
_NAMES = 80  # characters of the line of idle processes, where no width limits it


def status(
    process: Annotated[str | None, typer.Argument(help="Name of one process.", autocompletion=process_names)] = None,
    watch: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", help="Seconds between two refreshes, until Ctrl-C; 0 shows the status once.", min=0
        ),
    ] = 0,
) -> None:
    """Show processes, queued requests and what needs attention.

    It shows what needs attention first, then each process with holders or queued requests, and why the next request has
    not started. Of one process it also shows its settings, and each holder with its age and work.
    """
    context = current_context()
    if watch and context.out.as_json:
        raise typer.BadParameter("--watch cannot be combined with --json: run the command repeatedly instead")

    # Of a watch each refresh reads anew, except for what attention keeps longer, as the failures of a day.
    account = Account(context.stack, keeps=watch * 0.9 if watch else math.inf)

    def read() -> dict[str, Any]:
        nonlocal account
        if account.stack is not context.stack:  # after a failure
            account = Account(context.stack, keeps=watch * 0.9)
        data, found = read_status(account, process), attention(account)
        items = [each for each in found["items"] if not process or each["process"] in (None, process)]
        return data | {"attention": items, "not_read": data["not_read"] + found["not_read"]}

    if watch:
        show_refreshes(context, lambda: partial(_lines, read()), watch)
    data = read()
    context.out.result(data, lambda console: _print(console, data))


def _print(console: Console, data: dict[str, Any]) -> None:
    for each in _lines(data, width_of(console), None):
        console.print(each)


def _lines(data: dict[str, Any], width: int | None, rows: int | None) -> list[Text]:
    """The status as lines of at most `width` characters. Blocks beyond `rows` are counted; None: all fit."""
    title = Text.assemble((data["stack"], "bold"), f" in {data['region']}, {local_time(seconds(data['at']))}")
    above = [[title], *(finding_lines(each, seconds(data["at"])) for each in data["attention"])]
    below = [[styled(f"Not read: {each['source']}: {each['why']}", "yellow")] for each in data["not_read"]]
    if data["process"]:
        (process,) = data["processes"]
        holders = _holders(process).lines(width) if process["holders"] else []
        blocks, rest = [[each] for each in _facts(process, width) + holders], str(next_step("status", process["name"]))
    else:
        busy = [each for each in data["processes"] if _is_busy(each)]
        longest = max([_ID, *(len(each["name"]) for each in busy)])
        blocks = [_process(each, min(longest, (width or 999) - 33), width) for each in sorted(busy, key=_order)]
        rest = "slotkeeper status NAME"
        below = _idle([each for each in data["processes"] if not _is_busy(each)], width) + below
    below += _queues(data)
    if width is not None:
        above, blocks, below = (
            [wrapped(each, width, rows is not None) for each in part] for part in (above, blocks, below)
        )
    if rows is None:
        return [each for part in (above, blocks, below) for block in part for each in block]
    shown = _fitting(above, rows // 2, "slotkeeper status"), _fitting(below, rows // 3, "slotkeeper status")
    return [*shown[0], *_fitting(blocks, rows - len(shown[0]) - len(shown[1]), rest), *shown[1]]


def _fitting(blocks: Sequence[Block], rows: int, more: str) -> list[Text]:
    """The lines of the first blocks that fit, and how many do not, with the command that shows them."""
    shown = list[Text]()
    for number, block in enumerate(blocks):
        is_last = number == len(blocks) - 1
        if len(shown) + len(block) > rows - (not is_last):
            return [*shown, styled(f"and {len(blocks) - number:,} more: {more}", "yellow")]
        shown += block
    return shown


def _is_busy(process: Mapping[str, Any]) -> bool:
    is_used = process["slots_in_use"] or process["holders"] or process["has_drifted"]
    return bool(is_used or process["queue"]["queued"] != 0)  # or it is not known


def _order(process: Mapping[str, Any]) -> tuple[Any, ...]:
    """Those whose requests wait longest first, then those with most slots in use."""
    return (-(process["queue"]["oldest_seconds"] or 0), -process["slots_in_use"], process["name"])


def slots_bar(in_use: int, limit: int) -> str:
    """How much of a limit is in use: `[####......]`. Any use shows, and only a full limit is a full bar."""
    is_full = in_use >= limit and in_use > 0
    filled = _BAR if is_full else -(-in_use * (_BAR - 1) // max(limit, 1))
    return f"[{'#' * filled}{'.' * (_BAR - filled)}]"


def _process(process: Mapping[str, Any], longest: int, width: int | None) -> Block:
    """A process as one line, and its queue as another."""
    name = cut(process["name"], longest) if width else process["name"]
    shown = styled(f"{name:<{longest if width else _ID}}", "bold")
    shown.append(f"  {slots_bar(process['slots_in_use'], process['slot_limit'])}", style="not bold")
    rate = f"  at most {process['rate']}" if process["rate"] else ""
    shown.append(f"  {process['slots_in_use']:,} of {process['slot_limit']:,}{rate}", style="not bold")
    shown.append_text(_flags(process))
    queue = process["queue"] | {"blocked": process["queue"]["blocked"][:1]}
    return [shown, *_queue(queue, width), *_keys(process, 1, width)]


def _flags(process: Mapping[str, Any]) -> Text:
    flags = Text(style="not bold")
    if process["paused"]:
        flags.append("  PAUSED", style="yellow")
    if process["has_drifted"]:
        weights = [each["weight"] for each in process["holders"]]
        flags.append(f"  DRIFTED: {holders_text(weights)}", style="red")
    return flags


def _queue(queue: Mapping[str, Any], width: int | None) -> Block:
    """Number and age of the queued requests, the next of them with its reason, and those above the limit."""
    if not queue["queued"]:
        return [] if queue["queued"] == 0 else [Text("  its queue could not be read", "yellow")]
    more = "more than " * queue["is_cut"]
    lines = [styled(f"  {more}{queue['queued']:,} queued, the oldest for {duration(queue['oldest_seconds'])}")]
    first = [queue["first"]] if queue["first"] else []
    for title, request in [("next", each) for each in first] + [("blocked", each) for each in queue["blocked"]]:
        named = request | {"request_id": cut(request["request_id"], _ID)} if width else request
        lines.append(styled(f"  {title}: {waited(named)}: {request['because']}"))
    return lines


def _facts(process: Mapping[str, Any], width: int | None) -> Block:
    """The slots, settings and queue of one process."""
    bar = slots_bar(process["slots_in_use"], process["slot_limit"])
    shown = styled(process["name"], "bold") + Text(f"  {bar}  {in_use_text(process)}", "not bold") + _flags(process)
    settings = [target_text(process["target"]), *[f"at most {process['rate']}"] * bool(process["rate"])]
    if process["timeout_minutes"]:
        settings.append(f"work is stopped after {duration(process['timeout_minutes'] * 60)}")
    if process["settle_seconds"]:
        settings.append(f"slots are kept for {duration(process['settle_seconds'])} after an abort")
    facts = [shown, styled(f"  {'; '.join(settings)}", "dim"), *_queue(process["queue"], width)]
    facts += _keys(process, MAX_SHOWN, width)
    if len(process["holders"]) == 1 and (link := process["holders"][0].get("link")):
        facts.append(whole(f"  {link}", "dim"))
    return facts


def _keys(process: Mapping[str, Any], most: int, width: int | None) -> Block:
    """The fullest keys of a process, one on a line, with a bar if the key has a limit."""
    every = [of_key(each["key"] or "") for each in process["keys"][:most]]
    names = [cut(each, _ID) for each in every] if width else every
    longest, lines = max(map(len, names), default=0), Block()
    for name, each in zip(names, process["keys"], strict=False):
        bar = " " * (_BAR + 2) if each["limit"] is None else slots_bar(each["in_use"], each["limit"])
        lines.append(styled(f"  {name:<{longest}}  {bar}  {use_text(each)}"))
    rest = rest_text(process["keys"], most, process["queue"]["is_cut"])
    return lines + [styled(f"  {rest}")] * bool(lines and rest)


def _holders(process: Mapping[str, Any]) -> Any:
    """The holders of one process, one on a line: of a lease its end, of an execution its status and work."""
    weighted = any(each["weight"] != 1 for each in process["holders"])
    keyed = any(each["key"] for each in process["holders"])
    rows = table("holder", *["key"] * keyed, "state", "for", *[">weight"] * weighted, "status", "work", "execution")
    for each in process["holders"]:
        shown = [each["request_id"] or "not read", *[each["key"] or ""] * keyed, each["state"]]
        shown.append(duration(each["age_seconds"]))
        shown += [f"{each['weight']:,}"] * weighted
        style = "red" if is_dead(each) else ""
        if each["state"] == "LEASED":
            rows.add_row(each["execution"], *shown[1:], Text(lease_text(each), style), "", "")
            continue
        status, noun = each["execution_status"], kind_of(each["target"]).work_noun
        shown_status = "not read" if status is None else status or "none"
        work = each["glue_run"] or each["child"]
        work_text = f"{noun} {work['state']} {work['id']}" if work else f"no {noun} found"
        rows.add_row(*shown, Text(shown_status, style), work_text, each["execution"])
    return rows


def _idle(processes: Sequence[Mapping[str, Any]], width: int | None) -> list[Block]:
    """One line for all processes without holders and queued requests, with as many names as fit."""
    if not processes:
        return []
    line, left = f"{len(processes):,} idle: ", len(processes)
    for number, each in enumerate(processes):
        state = " (paused)" * each["paused"] or " (limit 0)" * (each["slot_limit"] == 0)
        longer = line + ", " * (number > 0) + cut(each["name"], _ID) + state
        if len(longer) > (width or _NAMES) - len(f" and {left - 1:,} more") * (left > 1):
            break
        line, left = longer, left - 1
    return [[styled(line + f" and {left:,} more" * (left > 0))]]


def _queues(data: Mapping[str, Any]) -> list[Block]:
    """The queues that have messages, and the flows that are not deployed."""
    blocks = []
    if not data["processes"] and not data["malformed"]:
        blocks.append([Text("There are no processes. Add one with: slotkeeper process add")])
    numbers = {name: sum(counts.values()) for name, counts in data["queues"].items()}
    shown = ", ".join(f"{name} {number:,}" for name, number in numbers.items() if number)
    is_dead = any(numbers.get(name) for name in DEAD_LETTER_QUEUES)
    blocks.append([styled(f"Messages: {shown}" if shown else "All queues are empty.", "yellow" if is_dead else "")])
    absent = not_deployed_text(data["not_deployed"])
    return blocks + [[styled(absent, "dim")]] * bool(absent)
