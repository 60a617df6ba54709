"""Accounts of moto that are prepared once and copied for each test, at a tenth of the processor time."""

from __future__ import annotations

import copyreg
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any

from moto import mock_aws
from moto.backends import get_backend
from moto.core.base_backend import BackendDict

copyreg.pickle(type(RLock()), lambda _: (RLock, ()))  # moto's queues have locks
_prepared: dict[Callable[[], Any], bytes] = {}


@contextmanager
def prepared_account[Result](prepare: Callable[[], Result]) -> Iterator[Result]:
    """The account after `prepare`, and its result. `prepare` runs once and must not depend on the test.

    Parameters of Systems Manager cannot be prepared: moto's cannot be pickled.
    """
    with mock_aws():
        if prepare not in _prepared:
            result = prepare()
            backends = [
                (backends.service_name, account, region, vars(backend))
                for backends in BackendDict._instances
                for account, region, backend in backends.iter_backends()
            ]
            _prepared[prepare] = pickle.dumps((result, backends))
        result, backends = pickle.loads(_prepared[prepare])  # noqa: S301 - its own
        for service, account, region, state in backends:
            vars(get_backend(service)[account][region]).update(state)
        yield result
