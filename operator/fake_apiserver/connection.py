"""What can be done to a connection besides answering on it."""

from __future__ import annotations

import asyncio
import socket
import struct

from aiohttp import web

_LINGER_NOT_AT_ALL = struct.pack("ii", 1, 0)


def reset_connection(request: web.BaseRequest) -> None:
    """Makes the client see a TCP reset; data written before may be lost, as in reality."""
    _abort(request.transport)


def _abort(transport: asyncio.BaseTransport | None) -> None:
    if not isinstance(transport, asyncio.WriteTransport):
        return
    connection = transport.get_extra_info("socket")
    if connection is not None:
        # asyncio's abort alone would close politely where nothing is left to send.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT_AT_ALL)
    transport.abort()


def abort_connections(runner: web.ServerRunner) -> None:
    """Resets every connection of a server, idle ones included."""
    for handler in list(runner.server.connections if runner.server is not None else ()):
        _abort(handler.transport)
