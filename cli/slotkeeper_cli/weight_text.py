"""Weights as text. A weight of 1 is not shown, so that a stack without weights shows slots and holders only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from slotkeeper_cli.formatting import count


def holders_text(weights: Sequence[int]) -> str:
    """The holders with these weights: `2 holders`, or `2 holders of weight 7`."""
    total = sum(weights)
    return count(len(weights), "holder") + f" of weight {total:,}" * (total != len(weights))


def weight_text(weight: int) -> str:
    """A weight to be appended: `, weight 5`, or empty for 1."""
    return f", weight {weight:,}" * (weight != 1)


def in_use_text(process: Mapping[str, Any]) -> str:
    """How much of a limit is in use, from the process's JSON: `2 of 3 slots in use`, `5 of 6 in use by 2 holders`."""
    in_use, limit = process["slots_in_use"], process["slot_limit"]
    weights = [holder["weight"] for holder in process["holders"]]
    if process["default_weight"] == 1 and set(weights) <= {1}:
        return f"{in_use} of {limit} slots in use"
    default = f", default weight {process['default_weight']:,}" * (process["default_weight"] != 1)
    return f"{in_use:,} of {limit:,} in use by {count(len(weights), 'holder')}{default}"
