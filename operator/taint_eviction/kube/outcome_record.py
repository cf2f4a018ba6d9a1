"""Outcomes ↔ the data of the ConfigMap that keeps them. Pure; makes no calls (``outcome_keeper``).

``binaryData`` has one key: lines of JSON compressed by gzip, each an outcome as ``/history`` shows it with ``toldBy``,
the replica that told it; the newest first. ``data`` says in clear text from when on outcomes are kept, when and by
whom they were written, and whether they are those of a dry run. What is read is untrusted: it is bounded before it is
decompressed and parsed, each field is read strictly, and an outcome that cannot be read is left out. Unknown fields are
left out as well, so that newer and older versions read each other's.
"""

import base64
import binascii
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from taint_eviction.core.objects import NamespacedName, PodRef
from taint_eviction.core.text import JsonObject, one_line
from taint_eviction.files.kubernetes_times import format_micro_time, format_rfc3339, parse_rfc3339
from taint_eviction.kube.json_fields import Unreadable, as_object, as_text, is_object, refuse

# In bytes, compressed, as etcd keeps them.
MAX_BYTES = 200_000
# In bytes, decompressed: twice what outcomes of usual lengths need.
_MAX_DECOMPRESSED = 4_000_000
_MAX_LINE = 8_000
_MAX_OUTCOMES = 10_000

# The outcomes, those first that tell most: the replica that evicted the pod knows more than one that saw it go.
_RANKS = ("evicted", "deleted", "gone", "blocked", "refused")

_KEY = "outcomes.jsonl.gz"
_SINCE, _WRITTEN, _WRITER, _DRY_RUN = "since", "written", "writer", "dryRun"
# gzip's header and trailer, in zlib's notation.
_GZIP = 31
# What the end of the stream may need.
_END_BYTES = 64
# The fields that name taints: left out where people must not learn their keys.
_NAMING_TAINTS = ("taint", "toleration", "byDefault")

# In characters.
_MAX_TEXT = 1_000
_MAX_NAMES = 10
_MAX_NUMBER = 1e12


def tells_more(outcome: str, other: str) -> bool:
    """Return whether an outcome of a pod tells more than another one of the same pod."""
    return _RANKS.index(outcome) < _RANKS.index(other)


class StoredOutcome(NamedTuple):
    """An outcome that was kept; ``line`` is its document as JSON, ``epoch`` its time, "" a taint that is not told.

    ``late_seconds``: how long after the deadline that was, negative: before it.
    """

    ref: PodRef
    node_name: str
    outcome: str
    taint_key: str
    epoch: float
    late_seconds: float
    line: bytes


@dataclass(frozen=True, slots=True)
class OutcomeRecord:
    """What the ConfigMap has; ``lines``: outcomes that are not read yet, bounded in number and bytes.

    ``since_epoch``: from when on outcomes are kept. ``written_epoch``, ``writer``: when it was written, and by whom.
    """

    lines: tuple[bytes, ...]
    since_epoch: float
    written_epoch: float
    writer: str
    dry_run: bool

    def outcomes(self) -> Iterator[StoredOutcome | None]:
        """Yield the outcomes; None for one that cannot be read."""
        for line in self.lines:
            try:
                yield read_outcome(line)
            except Unreadable:
                yield None


# Writing


class OutcomePacker:
    """Compresses outcomes until the bound is reached: the newest must come first."""

    def __init__(self, reasons: bool, writer: str) -> None:
        self._reasons = reasons
        self._writer = writer
        self._stream = zlib.compressobj(wbits=_GZIP)
        self._packed = bytearray()
        self._decompressed = 0

    def add(self, documents: Iterable[JsonObject]) -> bool:
        """Add some outcomes; return False, and add none of them, if there is no room."""
        text = b"".join([orjson.dumps(self._row(each), option=orjson.OPT_APPEND_NEWLINE) for each in documents])
        stream = self._stream.copy()
        packed = stream.compress(text) + stream.flush(zlib.Z_SYNC_FLUSH)
        decompressed = self._decompressed + len(text)
        if len(self._packed) + len(packed) > MAX_BYTES - _END_BYTES or decompressed > _MAX_DECOMPRESSED:
            return False
        self._stream, self._decompressed = stream, decompressed
        self._packed += packed
        return True

    def _row(self, document: JsonObject) -> JsonObject:
        row = {"toldBy": self._writer, **document}
        return row if self._reasons else {**row, **dict.fromkeys(_NAMING_TAINTS)}

    def finish(self, since_epoch: float, now_epoch: float, dry_run: bool) -> JsonObject:
        """Return ``data`` and ``binaryData`` of the ConfigMap."""
        packed = bytes(self._packed) + self._stream.flush()
        return {
            "data": {
                _SINCE: format_rfc3339(since_epoch),
                _WRITTEN: format_micro_time(now_epoch),
                _WRITER: self._writer,
                _DRY_RUN: str(dry_run).lower(),
            },
            "binaryData": {_KEY: base64.b64encode(packed).decode("ascii")},
        }


# Reading


def read_record(config_map: Mapping[str, Any]) -> OutcomeRecord | None:
    """Read the ConfigMap; None if nothing was written into it. Raises ``Unreadable``."""
    data, binary = as_object(config_map.get("data"), "data"), as_object(config_map.get("binaryData"), "binaryData")
    text = as_text(binary.get(_KEY), f"binaryData.{_KEY}")
    if not text:
        return None
    since_epoch, written_epoch = _time(data, _SINCE), _time(data, _WRITTEN)
    writer = one_line(as_text(data.get(_WRITER), f"data.{_WRITER}"))
    lines = _decompressed(text).split(b"\n", _MAX_OUTCOMES)[:-1]
    return OutcomeRecord(tuple(lines), since_epoch, written_epoch, writer, data.get(_DRY_RUN) == "true")


def _decompressed(text: str) -> bytes:
    # Base64 writes three bytes in four characters.
    if len(text) > 4 * MAX_BYTES // 3 + 4:
        refuse(f"binaryData.{_KEY} has more than {MAX_BYTES} bytes")
    stream = zlib.decompressobj(wbits=_GZIP)
    try:
        lines = stream.decompress(base64.b64decode(text, validate=True), _MAX_DECOMPRESSED + 1)
    except (binascii.Error, ValueError) as error:
        raise Unreadable(f"binaryData.{_KEY} is not base64") from error
    except zlib.error as error:
        raise Unreadable(f"binaryData.{_KEY} is not compressed by gzip") from error
    if len(lines) > _MAX_DECOMPRESSED:
        refuse(f"binaryData.{_KEY} has more than {_MAX_DECOMPRESSED} bytes when it is decompressed")
    return lines if stream.eof else refuse(f"binaryData.{_KEY} is cut off")


def _time(data: Mapping[str, Any], key: str) -> float:
    epoch = parse_rfc3339(data.get(key))
    return refuse(f"data.{key} is not a time") if epoch is None else epoch


def read_outcome(line: bytes) -> StoredOutcome:
    """Read an outcome, and keep only its known fields; raise ``Unreadable``."""
    if len(line) > _MAX_LINE:
        refuse("it is too long")
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise Unreadable("it is not JSON") from error
    if not is_object(row):
        refuse("it is not an object")
    kept = {name: _read(row.get(name), name) for name, _read in _FIELDS.items()}
    outcome, epoch = kept["outcome"], parse_rfc3339(kept["time"])
    if outcome not in _RANKS or epoch is None:
        refuse("its outcome or its time is not known")
    key = (kept["taint"] or "").partition(":")[0].partition("=")[0]
    ref = PodRef(NamespacedName(kept["namespace"], kept["name"]), kept["uid"])
    return StoredOutcome(ref, kept["node"], outcome, key, epoch, kept["lateSeconds"], orjson.dumps(kept))


def _text(value: object, path: str) -> str:
    return _text_or_none(value, path) or refuse(f"{path} is missing")


def _text_or_none(value: object, path: str) -> str | None:
    if value is None:
        return None
    text = as_text(value, path)
    return one_line(text, _MAX_TEXT)


def _instant(value: object, path: str) -> str:
    return _text(value, path) if parse_rfc3339(value) is not None else refuse(f"{path} is not a time")


def _instant_or_none(value: object, path: str) -> str | None:
    return None if value is None else _instant(value, path)


def _names(value: object, path: str) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list) or len(value) > _MAX_NAMES:
        refuse(f"{path} is not a short list")
    return [_text(each, path) for each in value]


def _number(value: object, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _MAX_NUMBER:
        refuse(f"{path} is not a number")
    return value if math.isfinite(value) else refuse(f"{path} is not a number")


def _flag(value: object, path: str) -> bool | None:
    return value if value is None or isinstance(value, bool) else refuse(f"{path} is not true or false")


def _ceiling(value: object, path: str) -> JsonObject | None:
    if value is None:
        return None
    ceiling = as_object(value, path)
    return {"rule": _text(ceiling.get("rule"), path), "seconds": _number(ceiling.get("seconds"), path)}


# The fields of an outcome (``outcome_memory``), and how each is read.
_FIELDS: Mapping[str, Callable[[object, str], Any]] = {
    "time": _instant,
    "outcome": _text,
    "namespace": _text,
    "name": _text,
    "uid": _text,
    "node": _text,
    "owner": _text_or_none,
    "taint": _text_or_none,
    "toleration": _text_or_none,
    "byDefault": _flag,
    "ceiling": _ceiling,
    "since": _instant,
    "sinceBy": _text,
    "deadline": _instant,
    "lateSeconds": _number,
    "heldSeconds": _number,
    "heldBy": _names,
    "builtInAt": _instant_or_none,
    "call": _text_or_none,
    "tries": _number,
    "answer": _text_or_none,
    "budget": _text_or_none,
    "toldBy": _text,
}
