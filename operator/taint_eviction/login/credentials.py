"""Finds the API server and the credentials at start. Every request asks for the current credentials.

Order: a kubeconfig that is named (flag or KUBECONFIG), then the service account of this process's pod, then
``~/.kube/config``. Every fault is a ``CredentialsError``: one line that says what to do.

Reference: https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/
"""

import asyncio
import contextlib
import logging
import os
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import ConfigException
from kubernetes.aio.config.incluster_config import InClusterConfigLoader

from taint_eviction import __version__
from taint_eviction.files.kubernetes_times import format_utc
from taint_eviction.login import kubeconfig as kubeconfigs
from taint_eviction.login.fence import fenced_requests
from taint_eviction.login.sessions import (
    AuthorizationMiddleware,
    environment_proxy,
    make_connector,
    make_session,
    with_tls,
)
from taint_eviction.login.tls import CurrentTls, TlsFiles, soon
from taint_eviction.login.token_sources import (
    CredentialsError,
    FixedAuthorization,
    Renewed,
    RenewedAuthorization,
    TokenFile,
    TokenSource,
)
from taint_eviction.runtime.ports import Clock

USER_AGENT = f"taint-eviction-controller/{__version__}"
logger = logging.getLogger(__name__)

# How often the log says that a certificate ends soon.
_TELL_SECONDS = 6 * 3600.0
# Refusals that last this long do not pass by themselves.
_REFUSED_SECONDS = 60.0
SERVICE_ACCOUNT_DIRECTORY = Path("/var/run/secrets/kubernetes.io/serviceaccount")

__all__ = ["Connection", "CredentialsError", "find_connection", "in_cluster", "known_contexts", "with_kubeconfig"]


class Connection:
    """An API server and the way to log in. Use it within one event loop, and close it in the end.

    ``url`` does not end with a slash. ``tls`` has the certificates for new connections. ``namespace`` is that of this
    process's pod or of the context, None if unknown. ``source`` has the current credentials; ``where`` names it in
    messages; ``user`` is the user's name in the kubeconfig. ``written`` returns what is written now of what is read
    only at the start, and raises ``CredentialsError``.
    """

    def __init__(
        self,
        configuration: Configuration,
        source: TokenSource,
        where: str,
        namespace: str | None,
        in_cluster: bool,
        *,
        tls: CurrentTls,
        written: Callable[[], object] = lambda: None,
    ) -> None:
        self._client = ApiClient(configuration)
        self.source = source
        self.tls = tls
        self.url: str = configuration.host.rstrip("/")
        if not self.url.startswith(("https://", "http://")):
            raise CredentialsError(f"{where}: the server {self.url!r} is not an http or https URL")
        self.where = where
        self.user = "the pod's service account" if in_cluster else ""
        self.namespace = namespace
        self.in_cluster = in_cluster
        self._clock = tls.clock
        self._written, self._at_start = written, written()
        self._refused_at: float | None = None
        # As in kubectl, the proxy of the environment counts if the kubeconfig names none.
        proxy = configuration.proxy or environment_proxy(self.url)
        self._authorize = AuthorizationMiddleware(source, self.url, proxy, configuration.tls_server_name, self._heard)
        self._connector: aiohttp.TCPConnector | None = None

    def _heard(self, accepted: bool) -> None:
        if accepted:
            self._refused_at = None
            return
        self.tls.refused()
        if self._refused_at is None:
            self._refused_at = self._clock.now().at

    @property
    def ssl_context(self) -> ssl.SSLContext:
        """The TLS context for new connections."""
        return self.tls.current()

    def restart_helps(self) -> str | None:
        """Return why a new process would get on: everything is refused for a minute, and the kubeconfig now names
        something else that is read only at the start; else None.
        """
        if self._refused_at is None or self._clock.now().at - self._refused_at < _REFUSED_SECONDS:
            return None
        try:
            same = self._written() == self._at_start
        except CredentialsError:
            return None
        return None if same else f"the API server refuses the credentials, and {self.where} has changed since the start"

    def certificate_ends(self) -> dict[str, float]:
        """Return when the client's certificate, and the authority that ends last, end, in seconds since the epoch."""
        return {name: life.ends_epoch for name, life in self.tls.lives().items()}

    async def tell_ends(self) -> None:
        """Log which certificates end soon, at the start and every few hours, until cancelled."""
        while True:
            for warning in self.warnings():
                logger.warning(warning)
            await asyncio.sleep(_TELL_SECONDS)

    def warnings(self) -> Iterator[str]:
        """Yield which certificates end soon, or have ended."""
        now = self._clock.now().server_epoch
        for name, life in self.tls.lives().items():
            if soon(life, now):
                verb = "ended" if life.ends_epoch <= now else "ends"
                yield f"the certificate ({name}) of {self.where} {verb} at {format_utc(life.ends_epoch)}"

    @property
    def connector(self) -> aiohttp.TCPConnector:
        """The pool of connections of all sessions; made inside the event loop, when it is first used."""
        if self._connector is None:
            self._connector = make_connector(self.ssl_context)
        return self._connector

    def failures(self) -> int:
        """Return how often the credentials could not be read or renewed."""
        return self.source.failures + self.tls.failures

    def make_session(
        self, *, listen_in: aiohttp.ClientMiddlewareType | None = None, **options: Any
    ) -> aiohttp.ClientSession:
        """Make a session; the caller closes it. ``listen_in`` is a middleware outside of all others."""
        middlewares = (self._authorize,) if listen_in is None else (listen_in, self._authorize)
        request_class = with_tls(options.pop("request_class", aiohttp.ClientRequest), self.tls.current)
        return make_session(self.connector, middlewares, USER_AGENT, request_class=request_class, **options)

    @contextlib.asynccontextmanager
    async def separate_session(self) -> AsyncIterator[aiohttp.ClientSession]:
        """Make a session with connections of its own; a balancer chooses a server for each."""
        connector = make_connector(self.ssl_context)
        try:
            request_class = with_tls(aiohttp.ClientRequest, self.tls.current)
            async with make_session(connector, (self._authorize,), USER_AGENT, request_class=request_class) as session:
                yield session
        finally:
            await connector.close()

    def api_client(
        self, may_act: Callable[[], bool] = lambda: True, may_evict: Callable[[], bool] = lambda: True
    ) -> ApiClient:
        """Return ``kubernetes.aio``'s client, which uses the shared connections.

        ``may_act`` is called before each request that changes a pod, ``may_evict`` before each that ends one (see
        ``fence``). Those of the first call of this method count.
        """
        if self._client.rest_client.pool_manager is None:
            self._client.rest_client.pool_manager = self.make_session(request_class=fenced_requests(may_act, may_evict))
            self._client.user_agent = USER_AGENT
        return self._client

    async def close(self) -> None:
        """Close the client, its session and all connections."""
        await self.source.close()
        await self._client.close()  # type: ignore[no-untyped-call]
        if self._connector is not None:
            await self._connector.close()


async def find_connection(
    kubeconfig: str | None,
    context: str | None,
    clock: Clock,
    environ: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT_DIRECTORY,
    home: Path | None = None,
) -> Connection:
    """Find the API server in the module's order. ``kubeconfig`` is a path, or a list of paths as in KUBECONFIG."""
    named = kubeconfig or environ.get("KUBECONFIG")
    if named:
        return await with_kubeconfig(named, context, clock)
    default = (home or Path.home()) / ".kube" / "config"
    if context is None and environ.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster(clock, environ, service_account)
    if default.exists():
        return await with_kubeconfig(str(default), context, clock)
    raise CredentialsError(
        "no API server is known: set --kubeconfig or KUBECONFIG, or run in a pod with a service account"
        f" ({default} does not exist either)"
    )


def known_contexts(
    kubeconfig: str | None, environ: Mapping[str, str] = os.environ, home: Path | None = None
) -> list[str]:
    """Return the names of the contexts among which ``find_connection`` chooses; raise ``CredentialsError``."""
    named = kubeconfig or environ.get("KUBECONFIG") or str((home or Path.home()) / ".kube" / "config")
    return kubeconfigs.context_names(kubeconfigs.split_paths(named))


async def with_kubeconfig(paths: str, context: str | None, clock: Clock) -> Connection:
    """Log in with a kubeconfig; ``context`` None means its current context."""
    selected = kubeconfigs.select(kubeconfigs.split_paths(paths), context)
    loader = kubeconfigs.Loader(selected)
    first = await loader.load(clock.now())
    if not loader.configuration.host or "server" not in selected.cluster:
        raise CredentialsError(f"{selected.where}: its cluster has no server")

    def again() -> kubeconfigs.Selected:
        return kubeconfigs.select(selected.files, selected.context)

    async def renew() -> Renewed:
        # An auth provider keeps what it has renewed in its loader.
        renewing = loader if loader.provider is not None else kubeconfigs.Loader(again())
        renewed = await renewing.load(clock.now())
        if renewing.certificate is not None:
            tls.give(*renewing.certificate)
        return renewed

    try:
        tls = CurrentTls(lambda: kubeconfigs.read_tls(again()), clock)
        if loader.certificate is not None:
            tls.give(*loader.certificate)
    except CredentialsError as error:
        raise CredentialsError(f"{selected.where}: {error}") from error
    source: TokenSource
    if (file := kubeconfigs.token_file(selected)) is not None and "exec" not in selected.user:
        source = TokenFile(file, clock)
    elif first.value is not None or "exec" in selected.user or loader.provider is not None:
        source = RenewedAuthorization(renew, first, clock)
    else:
        source = FixedAuthorization(None)
    connection = Connection(
        loader.configuration,
        source,
        selected.where,
        selected.namespace,
        in_cluster=False,
        tls=tls,
        written=lambda: kubeconfigs.read_at_start(again()),
    )
    connection.user = selected.user_name
    return connection


def in_cluster(
    clock: Clock,
    environ: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT_DIRECTORY,
) -> Connection:
    """Log in as the service account of this process's pod."""
    token, authority = service_account / "token", service_account / "ca.crt"
    configuration = Configuration()
    try:
        loader: Any = InClusterConfigLoader(  # type: ignore[no-untyped-call]
            str(token), str(authority), try_refresh_token=False, environ=environ
        )
        loader.load_and_set(configuration)
    except (ConfigException, OSError, ValueError) as error:
        raise CredentialsError(
            f"cannot log in as this pod's service account: {error} Check automountServiceAccountToken."
        ) from error
    where, namespace = "the pod's service account", _namespace(service_account)

    def read() -> TlsFiles:
        try:
            return TlsFiles(authority.read_text("ascii"), paths=(authority,))
        except (OSError, ValueError) as error:
            raise CredentialsError(f"{authority} cannot be read: {error}") from error

    tls = CurrentTls(read, clock)
    return Connection(configuration, TokenFile(token, clock), where, namespace, in_cluster=True, tls=tls)


def _namespace(service_account: Path) -> str | None:
    try:
        return (service_account / "namespace").read_text("utf-8").strip() or None
    except (OSError, ValueError):
        return None
