"""Reads the traffic between one embedded Kopf and the API server.

Kopf tells its handlers neither that a list is complete nor that a stream is alive, and its exceptions are private. This
module reads all of that from the responses, and from their absence.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import aiohttp
import orjson

from taint_eviction.core.text import one_line
from taint_eviction.files.list_pages import EndlessList, ListPages
from taint_eviction.kopf_shell.discovery import Discovery
from taint_eviction.kopf_shell.endings import error_line, refusal
from taint_eviction.kopf_shell.responses import TOO_LONG, Filtered, Purpose, RewrittenResponse, purpose_of
from taint_eviction.kopf_shell.watch_filter import WatchFilter
from taint_eviction.kube.json_fields import parse_version
from taint_eviction.runtime.ports import WatchEnded, WatchListener

# The API server writes the type first. Where it does not, an ERROR still ends the watch, with a less exact reason.
_ERROR_EVENT = b'{"type":"ERROR"'

# A list or a stream that is not answered for so long is asked for again: one request that hangs must not hide new
# taints for a minute. This is longer than a busy API server keeps a request in its queue by default. The second request
# has no such bound, since a proxy may keep a stream back until the first bookmark, which comes after a minute.
_MAX_ANSWER_SECONDS = 20.0

# A stream that ends this soon is followed by the next at once, and that one by another only after this time: Kopf
# itself would open thousands in a second.
_SHORT_SECONDS = 1.0
# The watch ends after so many of them in a row that brought nothing: only a list sees anything then.
_MOST_EMPTY_STREAMS = 3


class WatchInterceptor:
    """Reads the requests and responses of one embedded Kopf, and calls the listener for everything Kopf brings.

    ``failure``: what the API server refused last, or how the network failed; None after the next successful request.
    ``bug``: fails with an exception of the listener, which is a bug of this program and ends the watch; and with
    ``WatchEnded`` for a list that does not end. ``alive_at``: the latest sign of life, by the loop's clock.
    ``discovered``: set when Kopf has finished discovery and asks for objects. ``on_accepted``: called for each request
    that the API server accepts.

    ``since``: Kopf's first list is answered here, empty and with this version, so that Kopf watches from there. None:
    the API server answers it. The API server answers all later lists: each follows a gap.
    """

    def __init__(
        self, listener: WatchListener, watch_filter: WatchFilter, discovery: Discovery, since: int | None = None
    ) -> None:
        self.failure: str | None = None
        self._loop = asyncio.get_running_loop()
        self.bug: asyncio.Future[None] = self._loop.create_future()
        self.alive_at = self._loop.time()
        self.discovered = asyncio.Event()
        self.on_accepted: Callable[[], None] = _nothing
        self._listener = listener
        self._watch_filter = watch_filter
        self._discovery = discovery
        self._since = since
        self._muted = False
        # Whether a list is complete that no stream has followed yet.
        self._listed = False
        # Of the list that Kopf asks for.
        self._pages = ListPages()
        # When the latest stream was opened, None once its end was noted, and whether it brought anything.
        self._opened_at: float | None = None
        self._brought = False
        # Whether the latest list or stream was given up because there was no answer for so long, or was answered later.
        self._given_up = False
        # How many streams in a row ended at once, and how many of the latest ones brought nothing.
        self._short = self._empty = 0

    def mute(self) -> None:
        """Stop calling the listener."""
        self._muted = True

    def on_event(self, event: Mapping[str, Any]) -> None:
        """Report an event that Kopf's handler was given."""
        body = self._watch_filter.whole(event["object"])
        if body is not None and not self._watch_filter.is_known(event["type"], body):
            self._report_event({**event, "object": body})
        self._watch_filter.seen(event["object"])
        self._report_progress()

    def _report_event(self, event: Mapping[str, Any]) -> None:
        self._report(lambda: self._listener.on_event(event["type"], event["object"]))

    def _report_progress(self) -> None:
        version = self._watch_filter.progress()
        if version is not None:
            self._report(lambda: self._listener.on_progress(parse_version(version)))

    def _report(self, what: Callable[[], None]) -> None:
        if self._muted or self.bug.done():
            return
        try:
            what()
        except Exception as bug:  # Kopf would log it and continue; a bug must end the watch.
            self.fail(bug)

    def fail(self, bug: Exception) -> None:
        """End the watch with this exception, unless it already ends with another one."""
        if not self.bug.done():
            self.bug.set_exception(bug)
            self.bug.exception()  # asyncio complains of one that nobody asks for, as when the watch is cancelled too.

    async def listen_in(
        self, request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Send a request of Kopf and intercept the response (a client middleware of aiohttp)."""
        purpose = purpose_of(request.url)
        if purpose is Purpose.DISCOVER:
            known = self._discovery.response_to(request.url.path)
            if known is not None:
                return known
        else:
            self.discovered.set()
        if purpose is Purpose.LIST and (listed := self._list_without_request()) is not None:
            return listed
        if purpose is Purpose.WATCH:
            await self._pause_after_short_streams()
        asked_at = self._loop.time()
        bound = None if purpose is Purpose.DISCOVER or self._given_up else _MAX_ANSWER_SECONDS
        try:
            async with asyncio.timeout(bound) as waiting:
                response = await send(request)
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            self._given_up = waiting.expired()
            self.failure = error_line(error)
            if self._given_up and purpose is Purpose.WATCH:
                # Kopf would repeat it within the same inactivity_seconds, too few for a proxy's first bookmark.
                raise aiohttp.ClientPayloadError(self.failure) from error
            raise
        self._given_up = self._loop.time() - asked_at > _MAX_ANSWER_SECONDS
        if isinstance(response, RewrittenResponse):
            self._intercept(purpose, request, response)
        return response

    def _list_without_request(self) -> RewrittenResponse | None:
        """Return the empty list that Kopf's first list gets; None for later ones, or where there is no version."""
        since, self._since = self._since, None
        if since is None:
            return None
        page = {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": str(since)}, "items": []}
        self._listed = True
        return self._discovery.any_response().with_json(page)

    async def _pause_after_short_streams(self) -> None:
        """Note how the stream before ended, and wait or end this watch if such streams end at once."""
        if self._opened_at is None:
            return
        lasted, self._opened_at = self._loop.time() - self._opened_at, None
        if lasted >= _SHORT_SECONDS:
            self._short = self._empty = 0
            return
        self._short += 1
        self._empty = 0 if self._brought else self._empty + 1
        if self._empty >= _MOST_EMPTY_STREAMS:
            last = f"; last: {self.failure}" if self.failure is not None else ""
            self.fail(WatchEnded(f"{self._empty} streams in a row ended at once and brought nothing{last}"))
            await self._loop.create_future()  # Until Kopf is cancelled: it would go on after an error.
        if self._short > 1:
            await asyncio.sleep(_SHORT_SECONDS - lasted)

    def _intercept(self, purpose: Purpose, request: aiohttp.ClientRequest, response: RewrittenResponse) -> None:
        """Note the result of a response, and intercept its content before Kopf reads it."""
        self.failure = None if response.ok else f"{response.status} {response.reason}"
        if not response.ok:
            response.rewrite = self._note_refusal
            return
        self.on_accepted()
        # A list is a sign of life, but not if it follows another list without a stream in between: while the API server
        # refuses only streams with 429, Kopf lists again and again.
        if purpose is Purpose.WATCH or not self._listed:
            self.alive_at = self._loop.time()
        match purpose:
            case Purpose.DISCOVER:
                pass
            case Purpose.LIST:
                if "continue" not in request.url.query:
                    self._watch_filter.begin_list()
                    self._pages = ListPages()
                response.keep = self._watch_filter.filter_item
                response.rewrite = self._note_page
            case Purpose.WATCH:
                self._watch_filter.begin_stream(parse_version(request.url.query.get("resourceVersion")))
                Filtered.put_before(response, self._filter)
                self._opened()

    def _note_refusal(self, status: int, answer: Any) -> Any:
        self.failure = refusal(status, answer)
        details = answer.get("details") if isinstance(answer, dict) else None
        if isinstance(details, dict):
            details.pop("retryAfterSeconds", None)  # Where there is no header, Kopf waits as long as this says.
        return answer

    def _note_page(self, _status: int, page: Any) -> Any:
        if isinstance(page, dict):
            metadata = page.get("metadata")
            if not (isinstance(metadata, dict) and self._continues(metadata.get("continue"))):
                self._watch_filter.end_list()
                self._listed = True
        return page

    def _continues(self, token: Any) -> bool:
        """Return whether the list has another page; a list that does not end ends the watch, for Kopf would go on."""
        try:
            return bool(self._pages.following(token))
        except EndlessList as error:
            self.fail(WatchEnded(str(error)))
            raise aiohttp.ClientPayloadError(str(error)) from error

    def _opened(self) -> None:
        if self._listed:
            self._listed = False
            self._report(self._listener.on_listed)
        self._opened_at, self._brought = self._loop.time(), False
        self._report(self._listener.on_heard)

    def _filter(self, lines: Iterable[bytes]) -> Iterable[bytes]:
        """Take the lines that the stream brought, and return those that Kopf may see."""
        lines = list(lines)
        self.alive_at = self._loop.time()
        self._report(self._listener.on_heard)
        for line in lines:
            if line.startswith(_ERROR_EVENT):
                self._note_error_event(line)
            elif line is TOO_LONG:
                self.failure = f"the watch brought {TOO_LONG.decode()}"
            else:
                self._brought = True
        passed, endings = self._watch_filter.filter(lines)
        if self._watch_filter.went_back:
            # The API server sends events in order. A version that was too high would hide all later events, and Kopf
            # would resume from it. So this watch ends, and the next one begins with a list.
            self.fail(WatchEnded("the versions of its events went back: a proxy, or a restored storage"))
        for event in endings:
            self._report_event(event)
        self._report_progress()
        return passed

    def _note_error_event(self, line: bytes) -> None:
        try:
            status = orjson.loads(line)["object"]
            self.failure = one_line(f"ERROR event {status.get('code')}: {status.get('message')}")
        except (ValueError, KeyError, AttributeError, TypeError):
            self.failure = "an ERROR event that cannot be read"


def _nothing() -> None:
    pass
