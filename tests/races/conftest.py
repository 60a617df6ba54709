"""The engine that judges the races, once for the whole directory, and a token on it that is shared.

    pytest tests/races/test_slot_races.py --seconds 60

races for the slots so long at each limit, with 8 processes of 16 threads, tells every few seconds how it goes, and
leaves build/races/report.json. Without the option it is short, with fewer clients, and
leaves nothing: two xdist workers would write over each other.
"""

from collections.abc import Iterator

import pytest

from dev.emulator.chat_service import ChatService
from dev.emulator.dynamodb_local import DynamoDbLocal
from tests.races.shared_token import TABLE, TokenSharers
from tests.races.slot_races import Crowd


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seconds", type=float, help="race for the slots so long at each limit, and with all processes")


@pytest.fixture(scope="session")
def dynamodb_local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DynamoDbLocal]:
    with DynamoDbLocal.start(tmp_path_factory.mktemp("dynamodb-local") / "dynamodb.log") as running:
        running.client().create_table(
            TableName=TABLE,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": "token_name", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "token_name", "KeyType": "HASH"}],
        )
        yield running


@pytest.fixture(scope="session")
def crowd(
    request: pytest.FixtureRequest, dynamodb_local: DynamoDbLocal, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Crowd]:
    processes, threads = (8, 16) if request.config.getoption("seconds", None) else (2, 8)
    with Crowd(dynamodb_local, processes, threads, tmp_path_factory.mktemp("races")) as running:
        yield running


@pytest.fixture
def service() -> Iterator[ChatService]:
    """The API; a POST /auth takes long enough for others to come in between."""
    with ChatService(auth_latency=0.1) as running:
        yield running


@pytest.fixture
def sharing(dynamodb_local: DynamoDbLocal, service: ChatService) -> TokenSharers:
    return TokenSharers(dynamodb_local.client(connections=100), service)
