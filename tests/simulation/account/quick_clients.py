"""Caches for botocore: the same clients and answers at a third of the processor time.

A test creates its own sessions and clients. For each client botocore parses the service's description, copies its
handlers and compiles its endpoint rules: most of the time of a test with one or two clients. `install` replaces
functions of botocore by cached ones with the same result. Tests of one thread use a `shared_client`.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import botocore.session
from botocore import client, hooks, httpsession, regions, useragent
from botocore.hooks import NodeList


def install() -> None:
    """Install the caches. Call it before the first session is created."""
    botocore.session.create_loader = functools.cache(botocore.session.create_loader)
    client.ServiceModel = _once_for_each_description(client.ServiceModel)
    regions.EndpointProvider = _once_for_each_description(regions.EndpointProvider)
    client.ClientCreator._create_methods = _methods_of_a_model(client.ClientCreator._create_methods)
    hooks.EventAliaser._alias_event_name = _alias_of_a_name(hooks.EventAliaser._alias_event_name)
    httpsession.create_urllib3_context = functools.cache(httpsession.create_urllib3_context)
    hooks._PrefixTrie._recursive_copy = lambda _trie, node: _copied(node)
    useragent.sanitize_user_agent_string_component = functools.cache(useragent.sanitize_user_agent_string_component)
    useragent.UserAgentComponent.to_string = functools.cache(useragent.UserAgentComponent.to_string)


class _Handlers(hooks._PrefixTrie):
    """The handlers of a shared client, copied when a test changes them."""

    def __init__(self, original: hooks._PrefixTrie) -> None:
        self._root = original._root
        self.are_changed = False

    def append_item(self, *given: Any, **more: Any) -> None:
        self._copy()
        super().append_item(*given, **more)

    def remove_item(self, *given: Any) -> None:
        self._copy()
        super().remove_item(*given)

    def _copy(self) -> None:
        if not self.are_changed:
            self._root, self.are_changed = _copied(self._root), True


@functools.cache
def _client(service: str) -> tuple[Any, hooks._PrefixTrie, dict[str, Any]]:
    """A client, its handlers and those with an id."""
    made = botocore.session.get_session().create_client(service)
    emitter = made.meta.events._emitter
    handlers = emitter._handlers
    emitter._handlers = _Handlers(handlers)
    return made, handlers, copy.copy(emitter._unique_id_handlers)


def shared_client(service: str) -> Any:
    """One client for all tests of one thread, without the hooks of the test before."""
    shared, handlers, by_id = _client(service)
    emitter = shared.meta.events._emitter
    if emitter._handlers.are_changed:
        changed = {"_handlers": _Handlers(handlers), "_unique_id_handlers": copy.copy(by_id), "_lookup_cache": {}}
        vars(emitter).update(changed)
    return shared


def _once_for_each_description(make: Callable[..., Any]) -> Callable[..., Any]:
    """Cache by identity: botocore's loader returns the same object for the same file."""
    made: dict[int, tuple[Any, Any]] = {}

    def make_once(*args: Any, **kwargs: Any) -> Any:
        description = kwargs.get("ruleset_data") or args[0]
        if id(description) not in made:
            made[id(description)] = description, make(*args, **kwargs)
        return made[id(description)][1]

    return make_once


def _methods_of_a_model(create: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    created: dict[Any, dict[str, Any]] = {}

    def methods(creator: client.ClientCreator, model: Any) -> dict[str, Any]:
        if model not in created:
            created[model] = create(creator, model)
        return dict(created[model])

    return methods


def _alias_of_a_name(alias: Callable[..., str]) -> Callable[..., str]:
    aliases = functools.cache(functools.partial(alias, hooks.EventAliaser(None)))
    return lambda _aliaser, event_name: aliases(event_name)


def _copied(node: dict[str, Any]) -> dict[str, Any]:
    copy = node.copy()
    if "children" not in node:
        return {"_root": _copied(node["_root"])}
    copy["children"] = {chunk: _copied(child) for chunk, child in node["children"].items()}
    if node["values"] is not None:
        copy["values"] = NodeList(*(values.copy() for values in node["values"]))
    return copy
