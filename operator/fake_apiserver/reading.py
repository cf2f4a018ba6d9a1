"""Answers to get, list and watch.

Lists are consistent as of one version across their pages, as long as the history reaches back; they are written in
slices, so that one big list does not stop the loop. Reference: apiserver/pkg/endpoints/handlers/get.go and
apiserver/pkg/storage/cacher.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from itertools import islice

import orjson
from aiohttp import web

from .clock import WallClock
from .records import Selection, StoredObject
from .registry import Registry
from .request_info import RequestInfo
from .selectors import parse_field_selector, parse_label_selector
from .status import JsonObject, StatusError, bad_request, expired, not_found, too_large_resource_version
from .store import ObjectStore
from .tables import table, table_line, wants_table
from .watch import Renderer, plain_line

JSON = "application/json"
EXPIRED_CONTINUE = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)
_ITEMS_PER_WRITE = 64
_MAX_BYTES_AT_ONCE = 256 * 1024


@dataclass(frozen=True, slots=True)
class ListPage:
    """A list to be sent: the records and the list's own metadata."""

    records: list[StoredObject]
    metadata: JsonObject


def audit_id() -> str:
    """The Audit-Id of an answer, as every answer of the API server has one of its own."""
    return str(uuid.uuid4())


def headers(clock: WallClock) -> dict[str, str]:
    """Of answers that are written piecemeal; the Server header of aiohttp is left empty, real servers have none."""
    return {
        "Content-Type": JSON,
        "Date": clock.http_date(),
        "Audit-Id": audit_id(),
        "Cache-Control": "no-cache, private",
        "Server": "",
    }


def selection_of(info: RequestInfo) -> Selection:
    """What a list or watch request selects; raises 400 for selectors that cannot be understood."""
    resource = info.resource
    assert resource is not None
    fields = parse_field_selector(info.query.get("fieldSelector", ""), resource)
    if info.name:
        fields += parse_field_selector(f"metadata.name={info.name}", resource)
    labels = parse_label_selector(info.query.get("labelSelector", ""))
    return Selection(resource, info.namespace or None, labels, fields)


def version_of(query_value: str) -> int:
    """Of the parameter resourceVersion; "" and "0" are 0."""
    if not query_value:
        return 0
    if not query_value.isdecimal():
        why = f'strconv.ParseUint: parsing "{query_value}": invalid syntax'
        raise bad_request(f'invalid resource version: resourceVersion: Invalid value: "{query_value}": {why}')
    return int(query_value)


def _token(resource_version: int, start_key: str) -> str:
    token = {"v": "meta.k8s.io/v1", "rv": resource_version, "start": start_key}
    return base64.urlsafe_b64encode(orjson.dumps(token)).decode()


def _read_token(token: str) -> tuple[int, str]:
    try:
        decoded = orjson.loads(base64.urlsafe_b64decode(token))
        return int(decoded["rv"]), str(decoded["start"])
    except (ValueError, KeyError, TypeError) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from error


def list_page(store: ObjectStore, info: RequestInfo) -> ListPage:
    """The records of one page and what its metadata says about the rest."""
    selection, query = selection_of(info), info.query
    wanted, limit = version_of(query.get("resourceVersion", "")), int(query.get("limit") or 0)
    if wanted > store.resource_version:
        raise too_large_resource_version(wanted, store.resource_version)
    at, start_key = store.resource_version, ""
    if token := query.get("continue"):
        at, start_key = _read_token(token)
        # A version below zero is the token of an inconsistent list, handed out with a 410: it continues from here.
        at = store.resource_version if at < 0 else at
    elif query.get("resourceVersion") == "0":
        # Served from the watch cache, which knows no pages and may lag behind.
        at, limit = store.cached_version(selection.resource.plural), 0
    elif query.get("resourceVersionMatch") == "Exact":
        at = wanted
    records = store.select_at(selection, at, start_key)
    if records is None:
        raise _expired_list(start_key)
    return _page(store, selection, records, at, limit)


def _expired_list(start_key: str) -> StatusError:
    if not start_key:
        return expired("The resourceVersion for the provided list is too old.")
    return _WithContinue(_token(-1, start_key))


class _WithContinue(StatusError):
    """The 410 of an expired page carries a token with which an inconsistent list can go on."""

    def __init__(self, token: str) -> None:
        super().__init__(410, EXPIRED_CONTINUE)
        self.token = token

    def body(self) -> JsonObject:
        return {**super().body(), "metadata": {"continue": self.token}}


def _page(store: ObjectStore, selection: Selection, records: Iterable[StoredObject], at: int, limit: int) -> ListPage:
    metadata: JsonObject = {"resourceVersion": str(at)}
    if not limit:
        return ListPage(list(records), metadata)
    page = list(islice(records, limit + 1))
    if len(page) > limit:
        metadata["continue"] = _token(at, page[limit].key)
        if not selection.labels and not selection.fields:
            metadata["remainingItemCount"] = 1 + sum(1 for _ in records)
        page = page[:limit]
    return ListPage(page, metadata)


async def send_list(
    request: web.BaseRequest, info: RequestInfo, store: ObjectStore, clock: WallClock
) -> web.StreamResponse:
    """Writes a list in slices; the records are those of the moment of the request."""
    page, resource = list_page(store, info), info.resource
    assert resource is not None
    if wants_table(request.headers.get("Accept", "")):
        include = info.query.get("includeObject", "Metadata")
        body = orjson.dumps(table(resource, page.records, clock.now(), page.metadata, include))
        return web.Response(body=body + b"\n", content_type=JSON)
    head = f'{{"kind":"{resource.kind}List","apiVersion":"{resource.api_version}","metadata":'.encode()
    head += orjson.dumps(page.metadata) + b',"items":['
    # Each item is the tail after its brace; commas stand between items.
    size = len(head) + sum(len(r.tail) + 2 for r in page.records) - (1 if page.records else 0) + len(b"]}\n")
    if size <= _MAX_BYTES_AT_ONCE:
        items = b",".join(record.item() for record in page.records)
        return web.Response(body=head + items + b"]}\n", content_type=JSON)
    response = web.StreamResponse(headers={**headers(clock), "Content-Length": str(size)})
    await response.prepare(request)
    await response.write(head)
    for start in range(0, len(page.records), _ITEMS_PER_WRITE):
        slice_ = page.records[start : start + _ITEMS_PER_WRITE]
        await response.write((b"," if start else b"") + b",".join(record.item() for record in slice_))
    await response.write_eof(b"]}\n")
    return response


def read_object(registry: Registry, info: RequestInfo) -> StoredObject:
    """The current object, or with resourceVersion=0 what the watch cache has; raises 404."""
    resource = info.resource
    assert resource is not None
    if info.query.get("resourceVersion") != "0":
        return registry.get(resource, info.namespace, info.name)
    version = registry.store.cached_version(resource.plural)
    record = registry.store.get_at(resource.plural, info.namespace, info.name, version)
    if record is None:
        raise not_found(resource.group, resource.plural, info.name)
    return record


def send_object(request: web.BaseRequest, record: StoredObject, info: RequestInfo, clock: WallClock) -> web.Response:
    """One object, as JSON or as a table of one row."""
    if wants_table(request.headers.get("Accept", "")):
        metadata = {"resourceVersion": str(record.resource_version)}
        include = info.query.get("includeObject", "Metadata")
        obj = table(record.resource, [record], clock.now(), metadata, include)
        return web.Response(body=orjson.dumps(obj) + b"\n", content_type=JSON)
    return web.Response(body=record.encoded() + b"\n", content_type=JSON)


def renderer_of(request: web.BaseRequest, info: RequestInfo, clock: WallClock) -> Renderer:
    """How a watch encodes its events: the shared plain lines, or tables of its own."""
    if not wants_table(request.headers.get("Accept", "")):
        return plain_line
    include = info.query.get("includeObject", "Metadata")
    return partial(_table_line, clock, include)


def _table_line(clock: WallClock, include: str, event_type: str, record: StoredObject) -> bytes:
    return table_line(event_type, record, clock.now(), include)
