"""The engine that judges the races, once for the whole directory, and a token on it that is shared."""

from collections.abc import Iterator

import pytest

from local.chat_service import ChatService
from local.dynamodb_local import DynamoDbLocal
from tests.races.sharing import TABLE, Sharing


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


@pytest.fixture
def service() -> Iterator[ChatService]:
    """The API; a POST /auth takes long enough for others to come in between."""
    with ChatService(auth_latency=0.1) as running:
        yield running


@pytest.fixture
def sharing(dynamodb_local: DynamoDbLocal, service: ChatService) -> Sharing:
    return Sharing(dynamodb_local.client(connections=100), service)
