"""CloudWatch's metric math, as far as the alarms use it; None is a missing data point.

CloudWatch guide, "Using math expressions with CloudWatch metrics": a function of a missing point is missing, FILL puts
a value in its place, and DIFF has no value for the first point. The expressions in use are Python expressions too.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence

Point = float | None

_COMPARED = {ast.Eq: operator.eq, ast.Gt: operator.gt, ast.Lt: operator.lt, ast.GtE: operator.ge, ast.LtE: operator.le}
_COMPUTED = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


def values(expression: str, series: Mapping[str, Sequence[Point]]) -> list[Point]:
    """The values of an expression for series of one length. Raises NotImplementedError for an unknown function."""
    return _values(ast.parse(expression, mode="eval").body, series)


def _values(node: ast.expr, series: Mapping[str, Sequence[Point]]) -> list[Point]:
    match node:
        case ast.Constant(value=int() | float() as number):
            return [float(number)] * len(next(iter(series.values())))
        case ast.Name(id=name):
            return list(series[name])
        case ast.Call(func=ast.Name(id="DIFF"), args=[inner]):
            points = _values(inner, series)
            return [None, *map(_both(operator.sub), points[1:], points)]
        case ast.Call(func=ast.Name(id="FILL"), args=[inner, filler]):
            pairs = zip(_values(inner, series), _values(filler, series), strict=True)
            return [other if point is None else point for point, other in pairs]
        case ast.Call(func=ast.Name(id="IF"), args=[condition, yes, no]):
            chosen = zip(*(_values(each, series) for each in (condition, yes, no)), strict=True)
            return [None if holds is None else one if holds else other for holds, one, other in chosen]
        case ast.Compare(left=left, ops=[compare], comparators=[right]):
            return list(map(_both(_COMPARED[type(compare)]), _values(left, series), _values(right, series)))
        case ast.BinOp(left=left, op=compute, right=right):
            return list(map(_both(_COMPUTED[type(compute)]), _values(left, series), _values(right, series)))
    raise NotImplementedError(f"teach tests/template/metric_math.py what {ast.unparse(node)} yields")


def _both(function: Callable[[float, float], float]) -> Callable[[Point, Point], Point]:
    return lambda left, right: None if left is None or right is None else float(function(left, right))
