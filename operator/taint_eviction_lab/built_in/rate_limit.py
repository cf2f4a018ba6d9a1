"""The rate limit of a Kubernetes client: a token bucket that serves requests in their order.

Reference: k8s.io/client-go/util/flowcontrol, with kube-controller-manager's defaults of --kube-api-qps and
--kube-api-burst. The model's calls and its events share one client, and so one bucket.
"""

import asyncio

QPS, BURST = 20.0, 30


class ClientRateLimit:
    """One bucket, full at the start."""

    def __init__(self, qps: float = QPS, burst: int = BURST) -> None:
        self._qps, self._burst = qps, burst
        self._tokens = float(burst)
        self._counted_at = asyncio.get_running_loop().time()

    async def wait(self) -> None:
        """Take a token; wait until there is one."""
        now = asyncio.get_running_loop().time()
        self._tokens = min(float(self._burst), self._tokens + (now - self._counted_at) * self._qps) - 1.0
        self._counted_at = now
        if self._tokens < 0:
            await asyncio.sleep(-self._tokens / self._qps)
