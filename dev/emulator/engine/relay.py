"""Accept connections on the address of Docker's bridge, and pass them on to the same port of 127.0.0.1."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterable
from functools import partial

CHUNK = 65536  # bytes


def listen(address: str, ports: Iterable[int]) -> None:
    """Relay connections to these ports on a thread. Raises SystemExit if an address is taken or not this machine's."""
    listeners = []
    for port in ports:
        try:
            listeners.append(socket.create_server((address, port)))
        except OSError as error:
            raise SystemExit(f"cannot listen on {address}:{port}: {error.strerror}") from None
    threading.Thread(target=asyncio.run, args=(_serve(listeners),), name="bridge", daemon=True).start()


async def _serve(listeners: list[socket.socket]) -> None:
    for listener in listeners:
        await asyncio.start_server(partial(_relay, listener.getsockname()[1]), sock=listener)
    await asyncio.Event().wait()


async def _relay(port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        local_reader, local_writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:  # the engine has not started yet, or ends
        writer.close()
        return
    await asyncio.gather(_copy(reader, local_writer), _copy(local_reader, writer))


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while content := await source.read(CHUNK):
            target.write(content)
            await target.drain()
    target.close()
