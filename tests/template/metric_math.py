"""CloudWatch's metric math of one period, as far as the alarms use it; None is a missing data point.

CloudWatch guide, "Using math expressions with CloudWatch metrics": a function of a missing point is missing, and FILL
puts a value in its place. The expressions in use are Python expressions too.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Mapping

Point = float | None

_COMPARED = {ast.Eq: operator.eq, ast.Gt: operator.gt, ast.Lt: operator.lt, ast.GtE: operator.ge, ast.LtE: operator.le}
_COMPUTED = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


def value(expression: str, points: Mapping[str, Point]) -> Point:
    """The value of an expression for these points. Raises NotImplementedError for a function that no alarm uses."""
    return _value(ast.parse(expression, mode="eval").body, points)


def _value(node: ast.expr, points: Mapping[str, Point]) -> Point:
    match node:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.Name(id=name):
            return points[name]
        case ast.Call(func=ast.Name(id="FILL"), args=[inner, filler]):
            value = _value(inner, points)
            return _value(filler, points) if value is None else value
        case ast.Call(func=ast.Name(id="IF"), args=[condition, yes, no]):
            holds = _value(condition, points)
            return None if holds is None else _value(yes if holds else no, points)
        case ast.Compare(left=left, ops=[compare], comparators=[right]):
            return _both(_COMPARED[type(compare)], _value(left, points), _value(right, points))
        case ast.BinOp(left=left, op=compute, right=right):
            return _both(_COMPUTED[type(compute)], _value(left, points), _value(right, points))
    raise NotImplementedError(f"teach tests/template/metric_math.py what {ast.unparse(node)} yields")


def _both(function: object, left: Point, right: Point) -> Point:
    assert callable(function)
    return None if left is None or right is None else float(function(left, right))
