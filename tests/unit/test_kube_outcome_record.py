"""The data of the ConfigMap that keeps the last outcomes: what is written is read again, and what others wrote does no
harm.
"""

import base64
import gzip
import json
import random
import tracemalloc
import uuid
import zlib
from typing import Any

import pytest

from taint_eviction.kube.json_fields import Unreadable
from taint_eviction.kube.outcome_record import MAX_BYTES, OutcomePacker, OutcomeRecord, read_record

KEY = "outcomes.jsonl.gz"
EPOCH = 1_900_000_000.0
OUTCOME: dict[str, Any] = {
    "time": "2030-03-17T17:46:40.250000Z",
    "outcome": "evicted",
    "namespace": "shop",
    "name": "cart-6b8f",
    "uid": "a",
    "node": "node-7",
    "owner": "ReplicaSet/cart",
    "taint": "example.com/maintenance=now:NoExecute",
    "toleration": None,
    "byDefault": False,
    "ceiling": {"rule": "short", "seconds": 30},
    "since": "2030-03-17T17:46:40.000000Z",
    "sinceBy": "first sight",
    "deadline": "2030-03-17T17:46:40.000000Z",
    "lateSeconds": 0.25,
    "heldSeconds": 0.0,
    "heldBy": ["the circuit breaker"],
    "builtInAt": "2030-03-17T17:46:40.000000Z",
    "call": "delete",
    "tries": 1,
    "answer": "accepted",
    "budget": None,
}


def packed(*outcomes: dict[str, Any], reasons: bool = True) -> dict[str, Any]:
    """Return the data of a ConfigMap that keeps these outcomes."""
    packer = OutcomePacker(reasons, "replica-1")
    assert packer.add(outcomes)
    return packer.finish(EPOCH, EPOCH + 60.0, dry_run=False)


def with_lines(content: bytes) -> dict[str, Any]:
    """Return the data of a ConfigMap with this content in place of the outcomes."""
    data = packed(OUTCOME)
    return {**data, "binaryData": {KEY: base64.b64encode(content).decode()}}


def read(data: dict[str, Any]) -> OutcomeRecord:
    """Read the data, which are not empty."""
    record = read_record(data)
    assert record is not None
    return record


def test_what_is_written_is_read_again() -> None:
    """An outcome keeps all its fields, and says who told it."""
    record = read(packed(OUTCOME))
    [kept] = record.outcomes()
    assert kept is not None
    assert (kept.ref.uid, kept.node_name, kept.outcome, kept.epoch) == ("a", "node-7", "evicted", EPOCH + 0.25)
    assert kept.taint_key == "example.com/maintenance"
    assert json.loads(kept.line) == {**OUTCOME, "toldBy": "replica-1"}
    assert (record.since_epoch, record.written_epoch) == (EPOCH, EPOCH + 60.0)
    assert (record.writer, record.dry_run) == ("replica-1", False)


def test_an_outcome_that_was_restored_keeps_who_told_it() -> None:
    """The replica that writes it again did not see it."""
    [kept] = read(packed({**OUTCOME, "toldBy": "replica-0"})).outcomes()
    assert kept is not None
    assert json.loads(kept.line)["toldBy"] == "replica-0"


def test_a_config_map_that_nobody_has_written_has_no_outcomes() -> None:
    """Somebody may create it by hand."""
    assert read_record({"metadata": {"name": "x"}}) is None
    assert read_record({"data": None, "binaryData": {}}) is None


def test_taint_keys_are_left_out_where_they_are_to_stay_unknown() -> None:
    """Neither the taint nor the toleration, which names it as well, is written; also of one that was restored."""
    outcome = {**OUTCOME, "toleration": "example.com/maintenance for 5 s"}
    data = packed(outcome, reasons=False)
    assert b"maintenance" not in gzip.decompress(base64.b64decode(data["binaryData"][KEY]))
    [kept] = read(data).outcomes()
    assert kept is not None
    assert (kept.taint_key, json.loads(kept.line)["taint"], json.loads(kept.line)["byDefault"]) == ("", None, None)


def test_the_newest_outcomes_are_kept_within_the_bound() -> None:
    """Of 10,000 pods with random names and UIDs, as many as fit into 200 kB are kept, and these are thousands."""
    packer, rng = OutcomePacker(True, "replica-1"), random.Random(1)
    for _ in range(100):
        names = [f"cart-{rng.getrandbits(40):010x}" for _ in range(100)]
        if not packer.add(
            [{**OUTCOME, "name": name, "uid": str(uuid.UUID(int=rng.getrandbits(128)))} for name in names]
        ):
            break
    else:
        pytest.fail("all 10,000 fit")
    data = packer.finish(EPOCH, EPOCH, dry_run=True)
    size = len(base64.b64decode(data["binaryData"][KEY]))
    assert 0.95 * MAX_BYTES < size <= MAX_BYTES
    outcomes = list(read(data).outcomes())
    assert None not in outcomes
    assert len(outcomes) > 2000


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ({**packed(OUTCOME), "binaryData": {KEY: "no base64!"}}, "is not base64"),
        ({**packed(OUTCOME), "binaryData": {KEY: 7}}, "is not a string"),
        ({**packed(OUTCOME), "binaryData": [KEY]}, "binaryData is not an object"),
        ({**packed(OUTCOME), "data": {"since": "yesterday"}}, "data.since is not a time"),
        ({**packed(OUTCOME), "data": "x"}, "data is not an object"),
        (with_lines(b"plain text"), "is not compressed by gzip"),
        (with_lines(zlib.compress(b"x")), "is not compressed by gzip"),
        (with_lines(gzip.compress(b"x" * 1000)[:-9]), "is cut off"),
        ({**packed(OUTCOME), "binaryData": {KEY: "A" * 2 * MAX_BYTES}}, "has more than 200000 bytes"),
    ],
)
def test_data_that_cannot_be_read_are_refused_with_their_place(data: dict[str, Any], why: str) -> None:
    """The error says what is wrong."""
    with pytest.raises(Unreadable, match=why):
        read_record(data)


def test_little_that_decompresses_to_much_is_refused_without_decompressing_it() -> None:
    """A hundred and fifty megabytes of the same character, in less than the bound, need little memory."""
    bomb = with_lines(gzip.compress(b"\n" * 150_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(Unreadable, match="when it is decompressed"):
            read_record(bomb)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"nonsense",
        b"[" * 9000,
        b'"text"',
        b"{}",
        json.dumps({**OUTCOME, "toldBy": "x", "name": None}).encode(),
        json.dumps({**OUTCOME, "toldBy": "x", "uid": ""}).encode(),
        json.dumps({**OUTCOME, "toldBy": "x", "outcome": "praised"}).encode(),
        json.dumps({**OUTCOME, "toldBy": "x", "time": "now"}).encode(),
        json.dumps({**OUTCOME, "toldBy": "x", "lateSeconds": "1"}).encode(),
        json.dumps({**OUTCOME, "toldBy": "x", "lateSeconds": 1e300}).encode(),
        json.dumps({**OUTCOME, "toldBy": "x", "tries": True}).encode(),
        json.dumps({**OUTCOME, "toldBy": "x", "byDefault": "no"}).encode(),
        json.dumps({**OUTCOME, "toldBy": "x", "taint": {"key": "a"}}).encode(),
        json.dumps({**OUTCOME, "toldBy": "x", "ceiling": {"rule": 7}}).encode(),
        json.dumps({**OUTCOME, "toldBy": "x", "ceiling": [1]}).encode(),
        json.dumps({**OUTCOME, "toldBy": "x", "answer": "x" * 9000}).encode(),
    ],
)
def test_a_malformed_outcome_is_left_out_and_the_others_are_kept(line: bytes) -> None:
    """One bad line does not hide the rest."""
    good = json.dumps({**OUTCOME, "toldBy": "x"}).encode()
    found = list(read(with_lines(gzip.compress(good + b"\n" + line + b"\n" + good + b"\n"))).outcomes())
    assert [each is None for each in found] == [False, True, False]


def test_control_characters_and_unknown_fields_do_not_pass() -> None:
    """What is kept is shown to people, and written again."""
    line = json.dumps({**OUTCOME, "toldBy": "x", "node": "a\x1b[2Jb\nc", "future": "field"}).encode()
    [kept] = read(with_lines(gzip.compress(line + b"\n"))).outcomes()
    assert kept is not None
    assert kept.node_name.isprintable()
    assert "future" not in json.loads(kept.line)


def test_no_more_than_ten_thousand_lines_are_read() -> None:
    """They are cheap to write, and cost time to read."""
    assert len(read(with_lines(gzip.compress(b"\n" * 50_000))).lines) == 10_000
