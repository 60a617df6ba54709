"""DynamoDB's secondary indexes: a page costs what it reads."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from contextvars import ContextVar
from operator import itemgetter
from typing import Any

from dev.emulator.engine.emulator import dynamodb, patch, setting, wrap

# Next to the members of the indexes, which MiniStack drops when it replaces the items: index -> partition -> entries.
ORDER = "slotkeeper order"
Entry = tuple[tuple[Any, ...], tuple[Any, Any]]  # its place in the index, and the key of its item
_place = itemgetter(0)
_asked: ContextVar[dict[str, Any] | None] = ContextVar("the query that is answered", default=None)


@patch
def dynamodb_index_pages() -> None:
    """A query of an index takes as long as its page is, however long the index is.

    AWS: "Amazon DynamoDB Developer Guide: Local secondary indexes": an index has the order of its sort key. "Querying
    tables in DynamoDB": a query reads one page, up to its limit or 1 MB.
    MiniStack sorts all entries of the partition and evaluates the key condition on each of them, for every page.
    Shown by tests/deployed/test_index_queries.py. As a change of MiniStack itself, `_index_item` would keep the members
    of a partition sorted, and `_query` would cut its page out of them, without the variable that passes on the query.
    """
    wrap(dynamodb, "_query", _query)
    wrap(dynamodb, "_index_item", _index_item)
    wrap(dynamodb, "_index_members", _members)


def _query(original: Callable[..., Any], data: dict[str, Any]) -> Any:
    with setting(_asked, data):
        return original(data)


def _index_item(
    original: Callable[..., None], table: dict[str, Any], base: Any, sort: Any, item: dict[str, Any], add: bool
) -> None:
    """An item enters or leaves the indexes."""
    original(table, base, sort, item, add)
    for name, partitions in (table.get(dynamodb._INDEX_MEMBERS) or {}).get(ORDER, {}).items():
        hashes, ranges = dynamodb._index_key_lists(dynamodb._index_def(table, name))
        entries = partitions.get(dynamodb._index_partition(item, hashes, ranges))
        if entries is None:
            continue
        entry = _entry(table, ranges, item, (base, sort))
        at = bisect_left(entries, entry[0], key=_place)
        entries[at : at + (not add)] = [entry] if add else []


def _entry(table: dict[str, Any], ranges: list[str], item: dict[str, Any], key: Any = None) -> Entry:
    kinds = dynamodb._index_order_keys(table, ranges)
    return tuple(dynamodb._index_order_value(item, name, kind) for name, kind in kinds), key


def _members(original: Callable[..., Any], table: dict[str, Any]) -> Any:
    """The members of each index that a query may find: of the queried index only those that its page can contain."""
    members, asked = original(table), _asked.get()
    if asked is None or "KeyConditionExpression" not in asked:
        return members
    name = asked["IndexName"]
    hashes, ranges = dynamodb._index_key_lists(dynamodb._index_def(table, name))
    if len(hashes) != 1 or len(ranges) != 1:
        return members
    given = (asked.get(f"ExpressionAttribute{each}", {}) for each in ("Values", "Names"))
    partition = dynamodb._extract_pk_from_condition(asked["KeyConditionExpression"], *given, hashes[0])
    known = members.setdefault(ORDER, {}).setdefault(name, {})
    if partition not in known:
        keys = members[name].get(partition, ())
        entries = (_entry(table, ranges, table["items"][base][sort], (base, sort)) for base, sort in keys)
        known[partition] = sorted(entries, key=_place)
    try:
        return {name: {partition: _page(table, asked, known[partition])}}
    except ValueError:  # an invalid condition, which MiniStack refuses
        return members


def _page(table: dict[str, Any], asked: dict[str, Any], entries: list[Entry]) -> list[tuple[Any, Any]]:
    """The items of the next page, and one more if it ends at 1 MB."""
    is_forward, limit = asked.get("ScanIndexForward", True), asked.get("Limit")
    begin, end = _range(table, asked, entries)
    if start := asked.get("ExclusiveStartKey"):
        _, ranges = dynamodb._index_key_lists(dynamodb._index_def(table, asked["IndexName"]))
        place = _entry(table, ranges, start)[0]
        if is_forward:
            begin = max(begin, bisect_right(entries, place, key=_place))
        else:
            end = min(end, bisect_left(entries, place, key=_place))
    page: list[tuple[Any, Any]] = []
    size = 0
    for at in range(begin, end) if is_forward else range(end - 1, begin - 1, -1):
        base, sort = entries[at][1]
        page.append((base, sort))
        size += _size(table, asked, table["items"][base][sort])
        if len(page) == limit or size > dynamodb._DDB_PAGE_SIZE_BYTES:
            break
    return page


def _range(table: dict[str, Any], asked: dict[str, Any], entries: list[Entry]) -> tuple[int, int]:
    """Where the entries that fulfil the key condition begin and end: they are next to each other."""
    values, names = asked.get("ExpressionAttributeValues", {}), asked.get("ExpressionAttributeNames", {})
    expression = asked["KeyConditionExpression"]
    _, (sort_key,) = dynamodb._index_key_lists(dynamodb._index_def(table, asked["IndexName"]))
    value = dynamodb._key_condition_av(expression, None, values, names, sort_key)
    if value is None:
        return 0, len(entries)
    bound = dynamodb._sort_key_value(value, dynamodb._get_attr_type(table, sort_key))

    def fulfils(at: int) -> bool:
        base, sort = entries[at][1]
        return bool(dynamodb._evaluate_condition(expression, table["items"][base][sort], values, names))

    every, begin = range(len(entries)), 0
    if entries and not fulfils(0):  # then each entry before the range has a value that is not above the bound
        begin = bisect_left(every, True, key=lambda at: fulfils(at) or entries[at][0][0] > bound)
    return begin, bisect_left(every, True, lo=begin, key=lambda at: not fulfils(at))


def _size(table: dict[str, Any], asked: dict[str, Any], item: dict[str, Any]) -> int:
    return int(dynamodb._item_size_bytes(dynamodb._apply_index_projection(item, table, asked["IndexName"])))
