"""Runs the API server in a process of its own: `python -m fake_apiserver --port 0 --nodes 10`.

Prints one JSON line with its address when it is ready, and runs until SIGINT or SIGTERM.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import ssl
from pathlib import Path

from .clock import WallClock
from .kubeconfig import kubeconfig
from .population import populate
from .server import ApiServer


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m fake_apiserver", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--nodes", type=int, default=0, help="nodes to create")
    parser.add_argument("--pods", type=int, default=0, help="running pods to create, spread over the nodes")
    parser.add_argument("--pod-bytes", type=int, default=6_000, help="about how many bytes of JSON a pod has")
    parser.add_argument("--history-size", type=int, default=10_000, help="changes per kind that a watch can go back")
    parser.add_argument("--bookmark-interval", type=float, default=60.0, help="seconds")
    parser.add_argument("--kubelet-seconds", type=float, default=0.05, help="how long a pod takes to terminate")
    parser.add_argument("--start-seconds", type=float, help="when bound pods start to run; never if not given")
    parser.add_argument("--clock-offset", type=float, default=0.0, help="seconds that the server's clock is ahead")
    parser.add_argument("--seed", type=int, default=None, help="for uids and fault probabilities")
    parser.add_argument("--token", action="append", help="accept this bearer token (only); repeatable")
    parser.add_argument("--tls-certificate", type=Path, help="PEM; serves TLS together with --tls-key")
    parser.add_argument("--tls-key", type=Path, help="PEM")
    parser.add_argument("--kubeconfig", type=Path, help="write a kubeconfig to this file")
    return parser.parse_args()


def _server(arguments: argparse.Namespace) -> ApiServer:
    context: ssl.SSLContext | None = None
    if arguments.tls_certificate is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(arguments.tls_certificate, arguments.tls_key)
    server = ApiServer(
        host=arguments.host,
        port=arguments.port,
        ssl_context=context,
        tokens=set(arguments.token) if arguments.token else None,
        clock=WallClock(arguments.clock_offset),
        seed=arguments.seed,
        history_size=arguments.history_size,
    )
    server.watching.bookmark_interval_seconds = arguments.bookmark_interval
    server.kubelets.finish_after_seconds = arguments.kubelet_seconds
    server.kubelets.start_after_seconds = arguments.start_seconds
    populate(server.registry, nodes=arguments.nodes, pods=arguments.pods, pod_bytes=arguments.pod_bytes)
    return server


def _write_kubeconfig(arguments: argparse.Namespace, server: ApiServer) -> None:
    certificate = arguments.tls_certificate.read_bytes() if arguments.tls_certificate is not None else None
    token = arguments.token[0] if arguments.token else None
    # JSON is YAML, and every client reads it.
    arguments.kubeconfig.write_text(json.dumps(kubeconfig(server, token=token, ca_certificate=certificate), indent=2))


async def _serve(arguments: argparse.Namespace) -> None:
    server = _server(arguments)
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with server:
        if arguments.kubeconfig is not None:
            _write_kubeconfig(arguments, server)
        print(json.dumps({"url": server.url, "port": server.port, "pid": os.getpid()}), flush=True)
        await stopped.wait()


if __name__ == "__main__":
    asyncio.run(_serve(_arguments()))
