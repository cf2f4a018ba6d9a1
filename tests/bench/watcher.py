"""The bare watch loop as a process: ``python -m tests.bench.watcher KUBECONFIG`` watches nodes and decodes events."""

import asyncio
import sys
from pathlib import Path

from tests.bench.bare import BareClient


async def watch(kubeconfig: Path) -> None:
    """Watch until killed."""
    async with BareClient(kubeconfig) as client:
        async for _ in client.watch("/api/v1/nodes", await client.version("/api/v1/nodes")):
            pass


if __name__ == "__main__":
    asyncio.run(watch(Path(sys.argv[1])))
