"""Facts of DynamoDB: indexes, conditional writes of many map entries, transactions over two tables."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from botocore.exceptions import ClientError

from tests.facts.facts import (
    ASSUMED,
    EMBEDDED,
    EVERYWHERE,
    HAND_OFF,
    REAL,
    SIMULATED,
    Facts,
    NotShown,
    code_of,
    documented,
    localstack,
    moto_verified,
)
from tests.facts.tables import PROCESS, Item, Tables, executions, key

QUERIES = "test_dynamodb/test_dynamodb_query.py"
INDEX_PAGE = "Amazon DynamoDB Developer Guide, Local secondary indexes"
GLOBAL_PAGE = "Amazon DynamoDB Developer Guide, Using Global Secondary Indexes in DynamoDB"
QUERY_PAGE = "Amazon DynamoDB API Reference, Query"
TRANSACTION_PAGE = "Amazon DynamoDB API Reference, TransactWriteItems"
FACTS = Facts("dynamodb", EVERYWHERE, given=Tables)

# ------------------------------------------------------------------------------------------------------ local indexes


@FACTS.row(
    "A consistent query of a local index has the order of a text, without the items that lack the text. It returns the "
    "keys and the attributes that the index contains, and no others.",
    source=(
        moto_verified(QUERIES, "test_query_lsi_pagination"),
        documented(f"{INDEX_PAGE}, Attribute projections, and {QUERY_PAGE}, Select"),
    ),
    expected=[
        key("c") | {"place": {"S": "1#09"}},
        key("a") | {"place": {"S": "1#10"}, "weight": {"N": "2"}},
        key("b") | {"place": {"S": "2#05"}},
    ],
)
def index_in_the_order_of_a_text(tables: Tables) -> Any:
    tables.add("a", place="1#10", weight=2, body="{}", deadline=9)
    tables.add("b", place="2#05", body="{}")
    tables.add("c", place="1#09")
    tables.add("d")
    return tables.query("place")["Items"]


@FACTS.row(
    "A local index whose sort key is a number has the order of numbers, and a condition compares them as numbers.",
    source=moto_verified(QUERIES, "test_query_lsi_pagination_with_numerical_local_range_key"),
    expected=["c", "b", "a"],
)
def index_in_the_order_of_a_number(tables: Tables) -> list[str]:
    for execution, deadline in (("a", 100), ("b", 9), ("c", -3.5), ("d", 100.25)):
        tables.add(execution, deadline=deadline)
    return executions(tables.query("deadline", " AND deadline <= :until", {":until": {"N": "100"}}))


@FACTS.row(
    "An index orders texts by their bytes in UTF-8. A range may begin at a text and a character 0, the next text.",
    source=documented("Amazon DynamoDB Developer Guide, Supported data types and naming rules, String"),
    expected=(["a", "b", "c", "d", "e", "f"], ["b"], ["c", "d"]),
)
def ranges_of_texts_in_an_index(tables: Tables) -> Any:
    keys = ("/a\t1", "/a\t2", "/a \t1", "/\uffff\t1", "/\U00010000\t1", "01")
    for execution, key_and_time in zip("abcdef", keys, strict=True):
        tables.add(execution, place=f"1#{key_and_time}")

    def between(after: str, until: str) -> list[str]:
        ends = {":after": {"S": f"{after}\0"}, ":until": {"S": until}}
        return executions(tables.query("place", " AND place BETWEEN :after AND :until", ends))

    return between("", "~"), between("1#/a\t1", "1#/a\t~"), between("1#/a\t~", "1#/\uffff\t~")


@FACTS.row(
    "The key of a page has the table's and the index's key attributes, and the next page begins behind that entry. A "
    "page that ends at its limit has a key, also if nothing is behind it.",
    source=(moto_verified(QUERIES, "test_query_lsi_pagination"), documented(f"{QUERY_PAGE}, LastEvaluatedKey")),
    expected=(key("b") | {"place": {"S": "2"}}, [["a", "b"], ["c"]], [["a"], ["b"], ["c"], []]),
)
def pages_of_an_index(tables: Tables) -> Any:
    for execution, place in (("a", "1"), ("b", "2"), ("c", "3")):
        tables.add(execution, place=place)
    last = tables.query("place", Limit=2)["LastEvaluatedKey"]
    return last, list(tables.pages("place", Limit=2)), list(tables.pages("place", Limit=1))


@FACTS.row(
    "Entries with one sort key are each in one page.",
    source=documented(f"{INDEX_PAGE}: the values of its sort key need not be unique"),
    expected=["a", "b", "c"],
)
def equal_sort_keys(tables: Tables) -> list[str]:
    for execution in "cab":
        tables.add(execution, deadline=7)
    return sorted(execution for page in tables.pages("deadline", Limit=1) for execution in page)


@FACTS.row(
    "Limit counts the items before the filter: a page may be empty although there are matching items behind it.",
    source=documented(f"{QUERY_PAGE}, FilterExpression and Limit"),
    expected=(0, 1, [[], ["b"], []]),
)
def limit_before_the_filter(tables: Tables) -> Any:
    tables.add("a", place="1", weight=9)
    tables.add("b", place="2", weight=1)
    light = {"FilterExpression": "attribute_not_exists(weight) OR weight <= :limit", "Limit": 1}
    values = {":limit": {"N": "5"}}
    first = tables.query("place", "", values, **light)
    return first["Count"], first["ScannedCount"], list(tables.pages("place", values=values, **light))


@FACTS.row(
    "A page ends at 1 MB of the entries of the index, before the filter.",
    source=documented(f"{QUERY_PAGE}: 1 MB, and Amazon DynamoDB Developer Guide, Filter expressions for the Query"),
    expected=(2, [], ["a", "b", "c", "d", "e"]),
)
def pages_of_a_megabyte(tables: Tables) -> Any:
    for place, execution in enumerate("abcde"):
        tables.add(execution, place=str(place), skips="x" * 300_000, body="y" * 50_000)
    pages = list(tables.pages("place"))
    filtered = tables.query("place", FilterExpression="attribute_not_exists(skips)")
    return len(pages), filtered["Items"], [execution for page in pages for execution in page]


@FACTS.row(
    "Each write has entered and left the indexes for the next consistent query.",
    source=documented(f"{INDEX_PAGE}, Item writes and local secondary indexes, and Reading data from one"),
    expected={"place": ["01", "02", "03", "04", "05"], "ended": ["00", "06", "07", "08", "09"], "late": []},
    depends="S7: a dispatch starts no request that has ended. Otherwise each row must be read before its start",
)
def enter_and_leave_an_index(tables: Tables) -> Any:
    names, late = [f"{number:02}" for number in range(10)], []
    for number, name in enumerate(names):
        tables.add(name, place=name)
        late += [name] * (name not in executions(tables.query("place")))
        if 0 < number < 6:
            continue
        update = {"UpdateExpression": "SET ended = :now REMOVE place", "Key": key(name)}
        values = {"ExpressionAttributeValues": {":now": {"N": str(number)}}}
        tables.dynamodb.update_item(TableName=tables.requests, **update, **values)
        late += [name] * (name in executions(tables.query("place")))
    return {index: executions(tables.query(index)) for index in ("place", "ended")} | {"late": late}


@FACTS.row(
    "A period of an index has both its bounds, and has the order of its ends.",
    source=documented(f"{QUERY_PAGE}, KeyConditionExpression, BETWEEN"),
    expected=["b", "c", "d"],
)
def period_of_an_index(tables: Tables) -> list[str]:
    for execution, ended in (("a", 9.99), ("d", 20), ("c", 10.5), ("b", 10), ("e", 20.001)):
        tables.add(execution, ended=ended)
    return executions(tables.query("ended", " AND ended BETWEEN :a AND :b", {":a": {"N": "10"}, ":b": {"N": "20"}}))


# ----------------------------------------------------------------------------------------------------- a global index

OF_ANOTHER = {"process_name": {"S": "q"}, "execution": {"S": "of another"}}


def _fail(tables: Tables) -> None:
    for execution, failed in (("a", 1), ("b", 2), ("c", 3)):
        tables.add(execution, failed=failed, cause="long")
    tables.add("d", ended=4)
    tables.dynamodb.put_item(TableName=tables.requests, Item=OF_ANOTHER | {"failed": {"N": "2"}})
    _wait_for_entries(tables, "failed", 4)


def _wait_for_entries(tables: Tables, index: str, number: int) -> None:
    scan = partial(tables.dynamodb.scan, TableName=tables.requests, IndexName=index)
    tables.aws.wait(lambda: scan()["Count"] == number, f"{number} entries in the global index", HAND_OFF)


@FACTS.row(
    f"A global index has entries within {HAND_OFF:.0f} s, and none of what lacks its keys. A query has one partition, "
    "in pages also from the end.",
    source=documented(f"{GLOBAL_PAGE}; {QUERY_PAGE}, ScanIndexForward"),
    expected=(key("b") | {"failed": {"N": "2"}}, [["c", "b"], ["a"]]),
)
def pages_of_a_global_index(tables: Tables) -> Any:
    _fail(tables)
    newest_first: Item = {"ConsistentRead": False, "ScanIndexForward": False, "Limit": 2}
    first = tables.query("failed", **newest_first)
    return first["LastEvaluatedKey"], list(tables.pages("failed", **newest_first))


@FACTS.row(
    "A scan of a global index has the entries of all partitions, with the attributes of the index, and filters them.",
    source=documented(f"{GLOBAL_PAGE}, Scanning a Global Secondary Index"),
    expected=[each | {"failed": {"N": at}} for each, at in ((key("b"), "2"), (key("c"), "3"), (OF_ANOTHER, "2"))],
)
def scan_of_a_global_index(tables: Tables) -> Any:
    _fail(tables)
    answer = tables.dynamodb.scan(
        TableName=tables.requests,
        IndexName="failed",
        FilterExpression="failed >= :since",
        ExpressionAttributeValues={":since": {"N": "2"}},
    )
    return sorted(answer["Items"], key=lambda item: item["execution"]["S"])


@FACTS.row(
    "A query of a global index by an attribute alone has the items of all partitions with its value.",
    source=documented(GLOBAL_PAGE),
    expected=[each | {"request_id": {"S": "x"}, "attempt": {"N": "1"}} for each in (key("a"), OF_ANOTHER)],
)
def query_of_a_global_index_without_a_sort_key(tables: Tables) -> Any:
    for execution, request_id in (("a", "x"), ("b", "y")):
        tables.add(execution, request_id=request_id, attempt=1, cause="long")
    other = OF_ANOTHER | {"request_id": {"S": "x"}, "attempt": {"N": "1"}, "cause": {"S": "long"}}
    tables.dynamodb.put_item(TableName=tables.requests, Item=other)
    _wait_for_entries(tables, "request_id", 3)
    answer = tables.dynamodb.query(
        TableName=tables.requests,
        IndexName="request_id",
        KeyConditionExpression="request_id = :id",
        ExpressionAttributeValues={":id": {"S": "x"}},
    )
    return sorted(answer["Items"], key=lambda item: item["execution"]["S"])


@FACTS.row(
    "A consistent read of a global index is refused.",
    source=documented("Amazon DynamoDB API Reference, Query and Scan, ConsistentRead"),
    expected=["ValidationException"] * 2,
)
def consistent_read_of_a_global_index(tables: Tables) -> list[str]:
    scan = partial(tables.dynamodb.scan, TableName=tables.requests, IndexName="failed", ConsistentRead=True)
    return [code_of(lambda: tables.query("failed")), code_of(scan)]


# ------------------------------------------------------------------------------------------------- conditional writes


def _refusal(call: Any) -> Any:
    """The code of a refused call, and the items that came with it."""
    try:
        call()
    except ClientError as error:
        answer: Any = error.response
        return answer["Error"]["Code"], answer.get("Item"), _reasons(answer)
    return "accepted"


def _reasons(answer: Any) -> list[tuple[str, Any]]:
    return [(reason["Code"], reason.get("Item")) for reason in answer.get("CancellationReasons", [])]


@FACTS.row(
    "A put under the condition that there is no item is refused with the item that there is.",
    source=localstack("dynamodb/test_dynamodb.py", "test_return_values_on_conditions_check_failure"),
    expected=("ConditionalCheckFailedException", key("a") | {"place": {"S": "1"}}, []),
)
def put_if_absent(tables: Tables) -> Any:
    tables.add("a", place="1")
    return _refusal(
        lambda: tables.dynamodb.put_item(
            TableName=tables.requests,
            Item=key("a") | {"place": {"S": "2"}},
            ConditionExpression="attribute_not_exists(execution)",
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
    )


RESERVED = {"M": {"state": {"S": "RESERVED"}}}
MOST = range(25)
GRANT = {
    "UpdateExpression": "SET grants = grants + :one, " + ", ".join(f"holders.#n{at} = :h{at}" for at in MOST),
    "ConditionExpression": "grants = :seen AND size(holders) <= :room AND "
    + " AND ".join(f"attribute_not_exists(holders.#n{at})" for at in MOST),
    "ExpressionAttributeNames": {f"#n{at}": f"p-{at}" for at in MOST},
}


def _grant(tables: Tables, seen: int) -> Any:
    values: Item = {f":h{at}": RESERVED for at in MOST}
    values |= {":one": {"N": "1"}, ":seen": {"N": str(seen)}, ":room": {"N": "475"}}
    return tables.update_process(ExpressionAttributeValues=values, **GRANT)


def _begin(tables: Tables, **more: Item) -> None:
    item = PROCESS | {"grants": {"N": "7"}, "holders": {"M": {}}} | more
    tables.dynamodb.put_item(TableName=tables.slots, Item=item)


@FACTS.row(
    "One update may add 25 map entries, each with a placeholder and a condition of its own, once.",
    source=documented("Amazon DynamoDB Developer Guide, Service quotas, Expression parameters: 4 KB, 300 operators"),
    expected=("ConditionalCheckFailedException", {f"p-{at}": RESERVED for at in MOST}),
)
def add_25_entries(tables: Tables) -> Any:
    _begin(tables)
    _grant(tables, 7)
    return code_of(lambda: _grant(tables, 8)), tables.process()["holders"]["M"]


@FACTS.row(
    "Two paths that an update sets to one placeholder have a value each: a later update of one leaves the other.",
    source=documented("Amazon DynamoDB Developer Guide, Using update expressions in DynamoDB, SET"),
    expected={"p-1": {"M": {"state": {"S": "RUNNING"}}}, "p-2": RESERVED},
)
def one_placeholder_twice(tables: Tables) -> Any:
    _begin(tables)
    tables.update_process(
        UpdateExpression="SET holders.#a = :holder, holders.#b = :holder",
        ExpressionAttributeNames={"#a": "p-1", "#b": "p-2"},
        ExpressionAttributeValues={":holder": RESERVED},
    )
    tables.update_process(
        UpdateExpression="SET holders.#a.#state = :running",
        ExpressionAttributeNames={"#a": "p-1", "#state": "state"},
        ExpressionAttributeValues={":running": {"S": "RUNNING"}},
    )
    return tables.process()["holders"]["M"]


@FACTS.row(
    "UPDATED_NEW returns what was changed inside a map, below its path, and an attribute that kept its value.",
    source=ASSUMED,
    expected={"job": {"S": "j"}, "run_settings": {"M": {}}},
    depends="ConfirmSlot reads the process's target and its settings from the answer. Otherwise use ALL_NEW",
)
def updated_new_of_a_nested_path(tables: Tables) -> Any:
    _begin(tables, holders={"M": {"p-1": RESERVED}}, target={"S": "j"}, run_settings={"M": {}})
    changed = tables.update_process(
        UpdateExpression="SET holders.#me.#state = :running, holders.#me.job = target, "
        "run_settings = if_not_exists(run_settings, :none)",
        ExpressionAttributeNames={"#me": "p-1", "#state": "state"},
        ExpressionAttributeValues={":running": {"S": "RUNNING"}, ":none": {"M": {}}},
        ReturnValues="UPDATED_NEW",
    )["Attributes"]
    return {"job": changed["holders"]["M"]["p-1"]["M"]["job"], "run_settings": changed["run_settings"]}


@FACTS.row(
    "SET reads the value of an attribute that REMOVE removes in the same update.",
    source=ASSUMED,
    expected={"slots_in_use": {"N": "1"}, "holders": {"M": {}}},
    depends="S1: ReleaseSlot subtracts the weight of the holder that it removes. Otherwise the counter drifts: read "
    "the weight first",
)
def set_with_remove(tables: Tables) -> Any:
    _begin(tables, holders={"M": {"p-1": {"M": {"weight": {"N": "2"}}}}}, slots_in_use={"N": "3"})
    tables.update_process(
        UpdateExpression="SET slots_in_use = slots_in_use - if_not_exists(holders.#me.weight, :one) REMOVE holders.#me",
        ExpressionAttributeNames={"#me": "p-1"},
        ExpressionAttributeValues={":one": {"N": "1"}},
    )
    return {name: value for name, value in tables.process().items() if name in ("slots_in_use", "holders")}


@FACTS.row(
    "size() of a number makes a condition false.",
    source=ASSUMED,
    expected="ConditionalCheckFailedException",
    on=(SIMULATED, REAL),
    depends="F7: a malformed item admits nothing, and the starter reads it to find the reason. Otherwise handle the "
    "other error in slots/protocol.py",
)
def size_of_a_number(tables: Tables) -> str:
    _begin(tables)
    check = {"ConditionExpression": "size(grants) < :one", "ExpressionAttributeValues": {":one": {"N": "1"}}}
    return code_of(lambda: tables.update_process(UpdateExpression="SET grants = grants", **check))


# ------------------------------------------------------------------------------------------------------- transactions


def _end(tables: Tables, execution: str) -> Item:
    return {
        "Update": {
            "TableName": tables.requests,
            "Key": key(execution),
            "UpdateExpression": "SET #state = :end REMOVE place",
            "ConditionExpression": "attribute_exists(place)",
            "ExpressionAttributeNames": {"#state": "state"},
            "ExpressionAttributeValues": {":end": {"S": "CANCELLED"}},
        }
    }


COUNT = {
    "UpdateExpression": "SET grants = grants + :one",
    "ConditionExpression": "attribute_not_exists(holders.#me)",
    "ExpressionAttributeNames": {"#me": "p-1"},
    "ExpressionAttributeValues": {":one": {"N": "1"}},
    "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
}


def _count(tables: Tables) -> Item:
    return {"Update": {"TableName": tables.slots, "Key": PROCESS, **COUNT}}


@FACTS.row(
    "A transaction writes its items of two tables, and their indexes.",
    source=documented(TRANSACTION_PAGE),
    expected=(["b"], "8", "new"),
)
def transaction_over_two_tables(tables: Tables) -> Any:
    _begin(tables)
    for execution in "ab":
        tables.add(execution, place="1")
    added = key("c") | {"state": {"S": "new"}}
    put = {"TableName": tables.requests, "Item": added, "ConditionExpression": "attribute_not_exists(execution)"}
    tables.dynamodb.transact_write_items(TransactItems=[_end(tables, "a"), _count(tables), {"Put": put}])
    process = tables.process()
    row = tables.dynamodb.get_item(TableName=tables.requests, Key=key("c"))["Item"]
    return executions(tables.query("place")), process["grants"]["N"], row["state"]["S"]


@FACTS.row(
    "A transaction one part of which is refused writes nothing, and gives the reason of each part in their order.",
    source=localstack("dynamodb/test_dynamodb.py", "test_transaction_write_canceled"),
    expected=(
        "TransactionCanceledException",
        None,
        [
            ("None", None),
            ("ConditionalCheckFailed", PROCESS | {"grants": {"N": "7"}, "holders": {"M": {"p-1": RESERVED}}}),
            ("ConditionalCheckFailed", None),
        ],
        ["a"],
    ),
)
def cancelled_transaction(tables: Tables) -> Any:
    _begin(tables, holders={"M": {"p-1": RESERVED}})
    tables.add("a", place="1")
    tables.add("b")
    parts = [_end(tables, "a"), _count(tables), _end(tables, "b")]
    refused = _refusal(lambda: tables.dynamodb.transact_write_items(TransactItems=parts))
    return *refused, executions(tables.query("place"))


@FACTS.row(
    "A transaction has at most 100 operations, and one for each item.",
    source=(
        documented(f"{TRANSACTION_PAGE}, TransactItems"),
        moto_verified(
            "test_dynamodb/exceptions/test_dynamodb_transactions.py",
            "test_transact_write_items__put_and_delete_on_same_item",
        ),
    ),
    expected={"100": "accepted", "101": "ValidationException", "twice": "ValidationException"},
)
def operations_of_a_transaction(tables: Tables) -> dict[str, str]:
    _begin(tables)
    check = {"TableName": tables.slots, "Key": PROCESS, "ConditionExpression": "attribute_exists(grants)"}
    puts = [{"Put": {"TableName": tables.requests, "Item": key(str(each))}} for each in range(101)]
    parts: dict[str, list[Any]] = {"100": puts[:100], "101": puts, "twice": [_count(tables), {"ConditionCheck": check}]}
    write = tables.dynamodb.transact_write_items
    return {name: code_of(partial(write, TransactItems=each)) for name, each in parts.items()}


@FACTS.row(
    "While a transaction writes an item, a write of it fails without effect, and so does another transaction with it.",
    source=documented(
        "Amazon DynamoDB Developer Guide, Amazon DynamoDB Transactions: How it works, Transaction conflict handling"
    ),
    expected=(
        ("TransactionConflictException", None, []),
        ("TransactionCanceledException", None, [("None", None), ("TransactionConflict", None)]),
        "7",
    ),
    on=(SIMULATED, EMBEDDED),
)
def transaction_conflict(tables: Tables) -> Any:
    _begin(tables)
    tables.add("a", place="1")
    counted = _count(tables)
    tables.aws.conflict("UpdateItem")
    single = _refusal(lambda: tables.update_process(**COUNT))
    tables.aws.conflict("TransactWriteItems")
    parts = [_end(tables, "a"), counted]
    both = _refusal(lambda: tables.dynamodb.transact_write_items(TransactItems=parts))
    process = tables.process()
    return single, both, process["grants"]["N"]


CLIENTS = 4  # that write the item of the transactions
TRANSACTIONS = 100


@FACTS.row(
    "A single write to an item that a transaction writes has the error TransactionConflictException, and no other.",
    source=ASSUMED,
    expected=lambda errors: errors.keys() <= {"accepted", "TransactionConflictException"},
    unlike={"accepted": 40, "ConditionalCheckFailedException": 1},
    on=(REAL,),
    depends="confirm, record, release and grants repeat it by this name. Otherwise change the name in aws/dynamodb.py "
    "and in every Retry of the workflow",
)
def single_writes_during_transactions(tables: Tables) -> dict[str, int]:
    _begin(tables)
    tables.add("a")
    done = threading.Event()

    def write() -> Counter[str]:
        codes: Counter[str] = Counter()
        while not done.is_set():
            codes[code_of(lambda: tables.update_process(**COUNT))] += 1
        return codes

    with ThreadPoolExecutor(CLIENTS) as pool:
        writes = [pool.submit(write) for _ in range(CLIENTS)]
        try:
            for _ in range(TRANSACTIONS):
                parts = [_count(tables), {"Put": {"TableName": tables.requests, "Item": key("a")}}]
                code_of(lambda parts=parts: tables.dynamodb.transact_write_items(TransactItems=parts))  # type: ignore[misc]
        finally:
            done.set()
        codes = sum((each.result() for each in writes), Counter[str]())
    if not codes.keys() - {"accepted"}:
        raise NotShown(f"{codes['accepted']} writes met no transaction")
    return dict(codes)


# -------------------------------------------------------------------------------------------------------------- reads


@FACTS.row(
    "BatchGetItem returns the items that exist, without the others, and accepts no key twice.",
    source=documented("Amazon DynamoDB API Reference, BatchGetItem"),
    expected=([("a", "{}"), ("b", None)], {}, "ValidationException"),
)
def batch_of_rows(tables: Tables) -> Any:
    tables.add("a", body="{}")
    tables.add("b")

    def read(*names: str) -> Any:
        keys = {"Keys": [key(name) for name in names], "ConsistentRead": True}
        wanted = {**keys, "ProjectionExpression": "execution, body"}
        return tables.dynamodb.batch_get_item(RequestItems={tables.requests: wanted})

    answer = read("b", "missing", "a")
    found = [(each["execution"]["S"], each.get("body", {}).get("S")) for each in answer["Responses"][tables.requests]]
    return sorted(found), answer["UnprocessedKeys"], code_of(lambda: read("a", "a"))
