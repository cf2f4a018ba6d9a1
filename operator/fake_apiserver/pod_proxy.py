"""GET pods/NAME:PORT/proxy/PATH: what a pod answers by HTTP at the address in its status, in tests on loopback.

Reference: pkg/registry/core/pod/rest/subresources.go
"""

from __future__ import annotations

import aiohttp
from aiohttp import web

from .registry import Registry
from .request_info import RequestInfo
from .resources import RESOURCES
from .status import StatusError, bad_request

_TIMEOUT_SECONDS = 30.0


async def ask_pod(registry: Registry, info: RequestInfo) -> web.Response:
    """Passes a request on; raises 404 if there is no such pod, 503 if nothing listens."""
    name, _, port = info.name.partition(":")
    pod = registry.get(RESOURCES["pods"], info.namespace, name).decode()
    address = (pod.get("status") or {}).get("podIP")
    if not address:
        raise bad_request("address not allowed")
    url = f"http://{address}:{port or 80}{info.path.partition('/proxy')[2] or '/'}"
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_SECONDS)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url, params=info.query) as answer:
            headers = {"Content-Type": answer.headers.get("Content-Type", "text/plain")}
            return web.Response(status=answer.status, body=await answer.read(), headers=headers)
    except (aiohttp.ClientError, TimeoutError) as error:
        raise StatusError(503, f"error trying to reach service: {error}") from error
