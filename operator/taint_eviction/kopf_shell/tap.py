"""What passes between one embedded Kopf and the API server, listened to on the way.

Kopf tells its handlers neither that it has listed nor that the stream is alive, and its exceptions are private. All of
that can be heard on the line: in the answers, and in their absence.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import aiohttp
import orjson

from taint_eviction.kopf_shell.answers import Answer, Purpose, Strained, purpose_of
from taint_eviction.kopf_shell.discovery import Discovery
from taint_eviction.kopf_shell.endings import one_line, refusal
from taint_eviction.kopf_shell.sieve import Sieve
from taint_eviction.runtime.ports import WatchListener

# The API server writes the type first; where it is elsewhere, an ERROR still ends the watch, with a poorer reason.
_ERROR_EVENT = b'{"type":"ERROR"'


class Tap:
    """Listens in on one embedded Kopf, is what its handler reports to, and tells what the sieve keeps from it.

    ``trouble`` is what the API server, or the way to it, last refused; None after the next request that succeeded.
    ``bug`` fails with what the listener raised, which is ours and must end the watch. ``alive`` turns true with every
    sign of life; whoever watches over it turns it back. ``discovered`` is set once Kopf knows what resources there are
    and asks for objects. ``on_accepted`` is called with each request that the API server accepts.

    ``since``: Kopf's first list is answered here, with nothing but this version, so that it watches from there; None:
    it is made. Any later one is: then there was a gap.
    """

    def __init__(
        self, listener: WatchListener, sieve: Sieve | None, discovery: Discovery, since: int | None = None
    ) -> None:
        self.trouble: str | None = None
        self.bug: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.alive = False
        self.discovered = asyncio.Event()
        self.on_accepted: Callable[[], None] = _nothing
        self._listener = listener
        self._sieve = sieve
        self._discovery = discovery
        self._since = since
        self._muted = False
        self._listed = False

    def mute(self) -> None:
        """Tell the listener nothing from now on."""
        self._muted = True

    def on_event(self, event: Mapping[str, Any]) -> None:
        """Tell the listener what Kopf's handler was given, or what Kopf need not be given."""
        self._tell(lambda: self._listener.on_event(event["type"], event["object"]))

    def _tell(self, what: Callable[[], None]) -> None:
        if self._muted or self.bug.done():
            return
        try:
            what()
        except Exception as bug:  # Kopf would log it and go on; being ours, it is raised by the watch
            self.fail(bug)

    def fail(self, bug: Exception) -> None:
        """End the watch with this exception, unless it has one already."""
        if not self.bug.done():
            self.bug.set_exception(bug)

    async def listen_in(
        self, request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Send a request of Kopf and put ourselves between it and the answer (a client middleware of aiohttp)."""
        purpose = purpose_of(request.url)
        if purpose is Purpose.DISCOVER:
            known = self._discovery.answer_to(request.url.path)
            if known is not None:
                return known
        else:
            self.discovered.set()
        if purpose is Purpose.LIST and (listed := self._list_without_asking()) is not None:
            return listed
        try:
            answer = await send(request)
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            self.trouble = one_line(error)
            raise
        if isinstance(answer, Answer):
            self._listen_to(purpose, request, answer)
        return answer

    def _list_without_asking(self) -> Answer | None:
        since, self._since = self._since, None
        if since is None:
            return None
        page = {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": str(since)}, "items": []}
        self._listed = True
        return self._discovery.any_answer().retold(page)

    def _listen_to(self, purpose: Purpose, request: aiohttp.ClientRequest, answer: Answer) -> None:
        self.trouble = None if answer.ok else f"{answer.status} {answer.reason}"
        if not answer.ok:
            answer.rewrite = self._note_refusal
            return
        self.on_accepted()
        # A list is a sign of life, but not one that follows another with no stream between them: where only the stream
        # is refused with 429, Kopf lists again and again.
        self.alive = self.alive or purpose is Purpose.WATCH or not self._listed
        match purpose:
            case Purpose.DISCOVER:
                answer.rewrite = lambda _status, found: self._discovery.keep(request.url.path, answer, found)
            case Purpose.LIST:
                first = "continue" not in request.url.query
                answer.rewrite = lambda _status, page: self._list_page(page, first)
            case Purpose.WATCH:
                Strained.put_before(answer, self._strain)
                self._opened()

    def _note_refusal(self, status: int, answer: Any) -> Any:
        self.trouble = refusal(status, answer)
        return answer

    def _list_page(self, page: Any, first: bool) -> Any:
        if not isinstance(page, dict):
            return page
        metadata = page.get("metadata")
        self._listed = self._listed or not (isinstance(metadata, dict) and metadata.get("continue"))
        return page if self._sieve is None else self._sieve.list_page(page, first=first)

    def _opened(self) -> None:
        if self._listed:
            self._listed = False
            self._tell(self._listener.on_listed)
        self._tell(self._listener.on_heard)

    def _strain(self, lines: Iterable[bytes]) -> Iterable[bytes]:
        lines = list(lines)
        self.alive = True
        self._tell(self._listener.on_heard)
        for line in lines:
            if line.startswith(_ERROR_EVENT):
                self._note_error_event(line)
        if self._sieve is None:
            return lines
        passed, endings = self._sieve.strain(lines)
        for event in endings:
            self.on_event(event)
        return passed

    def _note_error_event(self, line: bytes) -> None:
        try:
            status = orjson.loads(line)["object"]
            self.trouble = one_line(f"ERROR event {status.get('code')}: {status.get('message')}")
        except (ValueError, KeyError, AttributeError, TypeError):
            self.trouble = "an ERROR event that can't be read"


def _nothing() -> None:
    pass
