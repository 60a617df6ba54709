"""DynamoDB Local, once for the folder, and a token that instances share on it.

    pytest tests/deployed/races/test_lease_races.py --seconds 60

runs a race of 60 s at each limit, with 8 processes of 16 threads, and prints its figures. Without the option, races are
short and have fewer clients.
"""

from collections.abc import Iterator

import pytest

from dev.emulator.chat_service import ChatService
from dev.emulator.dynamodb_local import DynamoDbLocal
from tests.deployed.races.crowd import Crowd
from tests.deployed.races.lease_race import LeaseCrowd
from tests.deployed.races.shared_token import TABLE, TokenSharers
from tests.simulation.account.tables import create_table


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seconds", type=float, help="duration of each race for leases, with all processes")


@pytest.fixture(scope="session")
def dynamodb_local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DynamoDbLocal]:
    with DynamoDbLocal.start(tmp_path_factory.mktemp("dynamodb-local") / "dynamodb.log") as running:
        create_table(running.client(), TABLE, "token_name")
        yield running


@pytest.fixture(scope="session")
def lease_crowd(request: pytest.FixtureRequest, dynamodb_local: DynamoDbLocal) -> Iterator[LeaseCrowd]:
    processes, threads = (8, 16) if request.config.getoption("seconds", None) else (2, 4)
    with Crowd(processes) as crowd:
        yield LeaseCrowd(dynamodb_local, crowd, threads)


@pytest.fixture
def service() -> Iterator[ChatService]:
    """The API. Its POST /auth takes long enough for other instances to act meanwhile."""
    with ChatService(auth_latency=0.1) as running:
        yield running


@pytest.fixture
def sharing(dynamodb_local: DynamoDbLocal, service: ChatService) -> TokenSharers:
    return TokenSharers(dynamodb_local.endpoint, service)
