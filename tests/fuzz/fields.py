"""Hostile values, and the fields of objects in which they stand."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson

Json = dict[str, Any]

TARGET = 'k:{"type":"DisruptionTarget"}'


@dataclass(frozen=True, slots=True)
class Raw:
    """JSON that Python's encoders do not write; the proxy puts ``text`` in place of a marker."""

    text: bytes

    @property
    def marker(self) -> str:
        """The text that stands for it in stored objects."""
        return f"@raw:{self.text[:40].hex()}:{len(self.text)}@"


def nested(depth: int) -> Any:
    """Return objects in objects, as deep as a value may be that is encoded here."""
    value: Any = {}
    for _ in range(depth):
        value = {"f:a": value}
    return value


# By name, so that a case can be told and repeated.
VALUES: dict[str, Any] = {
    "null": None,
    "true": True,
    "false": False,
    "zero": 0,
    "minus one": -1,
    "a fraction": 1.5,
    "int64's largest": 2**63 - 1,
    "int64's smallest": -(2**63),
    "one more than int64": 2**63,
    "thirty digits": Raw(b"1" * 30),
    "a number as large as floats": Raw(b"1e308"),
    "an empty text": "",
    "a space": " ",
    "a text": "odd",
    "true as a text": "true",
    "digits": "9" * 30_000,
    "minutes": "1m" * 30_000,
    "braces": "{" * 30_000,
    "brackets": "[" * 30_000,
    "quotes": '"' * 10_000,
    "backslashes": "\\" * 10_000,
    "dashes": "a-" * 15_000 + ".",
    "commas": "," * 30_000,
    "spaces": " " * 30_000 + "x",
    "angle brackets": "<" * 30_000,
    "lines": "a\nb\r\nc\u2028d\u2029e",
    "control characters": "\x00\x01\x1b[31m\x7f\u202e",
    "astral characters": "\U0001f600" * 1000,
    "an escaped surrogate pair": Raw(b'"\\ud83d\\ude00"'),
    "a path": "../../../../etc/passwd%00?a=b#c",
    "a selector": "spec.nodeName=n1,metadata.name!=x",
    "html": "<html><script>alert(1)</script></html>",
    "a format": "%s%n{0}{x.__class__}$(id)`id`",
    "a time of year one": "0001-01-01T00:00:00Z",
    "the last time": "9999-12-31T23:59:59.999999999Z",
    "a time after the last": "10000-01-01T00:00:00Z",
    "a time with an offset": "2024-05-01T10:00:00+99:99",
    "a time of many digits": "2024-05-01T10:00:00." + "1" * 10_000 + "Z",
    "an empty list": [],
    "an empty object": {},
    "a list of nulls": [None] * 100,
    "a list of lists": [[[[]]]] * 100,
    "a list of numbers": list(range(1000)),
    "a list of texts": ["a"] * 1000,
    "a list of objects": [{"key": "a", "type": "Ready", "status": "True"}] * 500,
    "an object of nulls": {f"k{number}": None for number in range(100)},
    "an object of objects": {"a": {"b": {"c": {}}}},
    "a nested object": nested(200),
    "a deeply nested object": Raw(b'{"f:a":' * 5000 + b"{}" + b"}" * 5000),
    "equal keys": Raw(b'{"key":"a","key":"b","key":null}'),
    "many keys": {f"k{number}": "v" for number in range(3000)},
}

# A value nested more deeply than parsers accept can stand only where the API server stores any JSON.
ONLY_IN_FIELDS_V1 = frozenset({"a deeply nested object"})

Path = tuple[str | int, ...]

POD_FIELDS: tuple[Path, ...] = (
    ("metadata", "labels"),
    ("metadata", "labels", "app"),
    ("metadata", "annotations"),
    ("metadata", "annotations", "taint-eviction/hold"),
    ("metadata", "annotations", "taint-eviction/seconds"),
    ("metadata", "annotations", "taint-eviction/adopted"),
    ("metadata", "annotations", "kubernetes.io/config.mirror"),
    ("metadata", "creationTimestamp"),
    ("metadata", "deletionGracePeriodSeconds"),
    ("metadata", "generateName"),
    ("metadata", "finalizers"),
    ("metadata", "ownerReferences"),
    ("metadata", "ownerReferences", 0),
    ("metadata", "ownerReferences", 0, "kind"),
    ("metadata", "ownerReferences", 0, "name"),
    ("metadata", "ownerReferences", 0, "uid"),
    ("metadata", "ownerReferences", 0, "controller"),
    ("metadata", "managedFields"),
    ("metadata", "managedFields", 0),
    ("metadata", "managedFields", 0, "manager"),
    ("metadata", "managedFields", 0, "time"),
    ("metadata", "managedFields", 0, "subresource"),
    ("metadata", "managedFields", 0, "fieldsV1"),
    ("metadata", "managedFields", 0, "fieldsV1", "f:status"),
    ("metadata", "managedFields", 0, "fieldsV1", "f:status", "f:conditions"),
    ("metadata", "managedFields", 0, "fieldsV1", "f:status", "f:conditions", TARGET),
    ("spec", "tolerations"),
    ("spec", "tolerations", 0),
    ("spec", "tolerations", 0, "key"),
    ("spec", "tolerations", 0, "operator"),
    ("spec", "tolerations", 0, "value"),
    ("spec", "tolerations", 0, "effect"),
    ("spec", "tolerations", 0, "tolerationSeconds"),
    ("spec", "containers"),
    ("spec", "priority"),
    ("spec", "schedulerName"),
    ("status", "phase"),
    ("status", "startTime"),
    ("status", "reason"),
    ("status", "message"),
    ("status", "conditions"),
    ("status", "conditions", 0),
    ("status", "conditions", 0, "type"),
    ("status", "conditions", 0, "status"),
    ("status", "conditions", 0, "reason"),
    ("status", "conditions", 0, "lastTransitionTime"),
    ("status", "conditions", 1, "status"),
    ("status", "conditions", 1, "reason"),
    ("status", "conditions", 1, "lastTransitionTime"),
)

NODE_FIELDS: tuple[Path, ...] = (
    ("metadata", "labels"),
    ("metadata", "labels", "topology.kubernetes.io/zone"),
    ("metadata", "labels", "node.kubernetes.io/exclude-disruption"),
    ("metadata", "annotations"),
    ("metadata", "managedFields"),
    ("metadata", "managedFields", 0, "time"),
    ("metadata", "managedFields", 0, "fieldsV1"),
    ("spec", "taints", 1),
    ("spec", "taints", 1, "key"),
    ("spec", "taints", 1, "value"),
    ("spec", "taints", 1, "timeAdded"),
    ("spec", "podCIDR"),
    ("status", "conditions"),
    ("status", "conditions", 0),
    ("status", "conditions", 0, "status"),
    ("status", "conditions", 0, "message"),
    ("status", "conditions", 0, "lastTransitionTime"),
)


@dataclass(frozen=True, slots=True)
class FieldCase:
    """A value in a field of ``plural``: pods or nodes."""

    plural: str
    path: Path
    value_name: str

    def __str__(self) -> str:
        return f"{self.plural} {'.'.join(map(str, self.path))}: {self.value_name}"

    @property
    def value(self) -> Any:
        """What is stored: of raw JSON its marker."""
        value = VALUES[self.value_name]
        return value.marker if isinstance(value, Raw) else value


def field_cases() -> list[FieldCase]:
    """Return all cases."""

    def cases() -> Iterator[FieldCase]:
        for plural, fields in (("pods", POD_FIELDS), ("nodes", NODE_FIELDS)):
            for path in fields:
                for name in VALUES:
                    if name not in ONLY_IN_FIELDS_V1 or "fieldsV1" in path:
                        yield FieldCase(plural, path, name)

    return list(cases())


def markers() -> dict[bytes, bytes]:
    """Return what stands in encoded JSON for raw values, and the raw values."""
    raws = [value for value in VALUES.values() if isinstance(value, Raw)]
    return {f'"{raw.marker}"'.encode(): raw.text for raw in raws}


_MARKERS = markers()


def as_sent(body: Json) -> bytes:
    """Encode an object or an answer, with raw values in place of their markers."""
    content = orjson.dumps(body)
    for marker, raw in _MARKERS.items():
        if marker in content:
            content = content.replace(marker, raw)
    return content


def spoil(body: Json, case: FieldCase) -> None:
    """Put the value into its field; parts on the way that are missing are made."""
    at: Any = body
    for step, following in zip(case.path, case.path[1:], strict=False):
        empty: Any = [] if isinstance(following, int) else {}
        if isinstance(step, int):
            while len(at) <= step:
                at.append({})
            at = at[step]
        else:
            at = at.setdefault(step, empty)
    last = case.path[-1]
    if isinstance(last, int):
        while len(at) <= last:
            at.append({})
    at[last] = case.value
