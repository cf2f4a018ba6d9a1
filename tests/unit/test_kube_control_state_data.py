"""The keys of the state ConfigMap are read as control state, and written from it."""

import pytest

from taint_eviction.core.control_state import EVERYTHING, ControlState, Latch, Pause, PauseScope
from taint_eviction.core.text import one_line
from taint_eviction.kube.control_state_data import (
    MAX_KEYS,
    UNKNOWN_EPOCH,
    has_format,
    key_of,
    latch_text,
    pause_changes,
    pause_text,
    problem_of,
    read_control_state,
    reset_text,
    with_format,
)

# Keys that people have made up.
X, Y = "pause-selector.x", "pause-selector.y"
SINCE = "2030-03-17T17:46:40Z"
EPOCH = 1_900_000_000.0


def control_state(**data: str) -> ControlState:
    """Read well-formed data; ``__`` in a key stands for a dot."""
    found, complaints = read_control_state(
        {"data": {key.replace("__", ".").replace("_", "-"): text for key, text in data.items()}}
    )
    assert complaints == []
    return found


@pytest.mark.parametrize("data", [{}, {"data": None}, {"data": {}}, {"data": {}, "binaryData": None}])
def test_an_empty_config_map_pauses_nothing(data: dict[str, object]) -> None:
    """The field data may be absent, null or empty."""
    assert read_control_state(data) == (ControlState(), [])


def test_pauses_are_read_by_their_scope() -> None:
    """All evictions, each node and each namespace have a key of their own; the value false ends a pause."""
    assert control_state(
        pause="true",
        pause_node__n1="true\n",
        pause_node__a__b="{}",
        pause_namespace__shop="true",
        pause_node__n2="false",
    ) == ControlState(
        Pause(), {"n1": Pause(), "a.b": Pause()}, {"shop": Pause()}, resumed=frozenset({PauseScope("node", "n2")})
    )


def test_pauses_by_selectors_are_read_whatever_their_keys_are_called() -> None:
    """The value has the selector. Of several that mean the same nodes, the one that ends last counts."""
    read = control_state(
        pause_selector__gpu='{"selector": "pool == gpu", "reason": "drivers"}',
        pause_selector__0123='{"selector": "pool in (gpu)", "until": "2030-03-17T17:46:40Z"}',
        pause_selector__later='{"selector": "zone notin (a)"}',
        pause_selector__off="false",
        format="2",
    )
    assert read == ControlState(selectors={"pool=gpu": Pause(reason="drivers"), "zone notin (a)": Pause()})


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("true", "its value is not an object with a selector"),
        ("{}", "its value is not an object with a selector"),
        ('{"selector": 5}', "its value is not an object with a selector"),
        ('{"selector": "pool in gpu"}', "selector is not a label selector (key=value, "),
        (
            '{"selector": "pool=a,pool=b"}',
            "selector is not a label selector for nodes: it can match nothing: pool",
        ),
        (f'{{"selector": "{"a" * 513}"}}', "selector is not a label selector of at most 512 characters"),
        ('{"selector": "pool=gpu", "until": "soon"}', "until is not a time"),
        ("pool=gpu", "its value is not JSON"),
    ],
)
def test_a_selector_that_cannot_be_read_pauses_all_nodes(value: str, why: str) -> None:
    """An attempt to pause some is not ignored; another selector beside it counts as well."""
    data = {"pause-selector.x": value, "pause-selector.y": '{"selector": "zone=a"}', "format": "2"}
    found, (complaint,) = read_control_state({"data": data})
    assert complaint.startswith(f"the key pause-selector.x is malformed ({why}")
    assert complaint.endswith("; it holds evictions")
    assert found.selectors.keys() == {"", "zone=a"}
    assert PauseScope("selector", "").selects({})


def test_an_empty_selector_pauses_all_nodes() -> None:
    """So it does in Kubernetes."""
    assert control_state(pause_selector__x='{"selector": ""}', format="2").selectors == {"": Pause()}


def test_a_change_of_a_pause_by_a_selector_removes_each_key_that_has_the_selector() -> None:
    """People may have given it keys of their own; a malformed one goes with the pause of all nodes."""
    own = key_of(PauseScope("selector", "pool=gpu"))
    by_hand = {"pause-selector.gpu": '{"selector": "pool in (gpu)"}', "pause-selector.x": "?"}
    data = {own: '{"selector": "pool=gpu"}', **by_hand}
    gpu, everywhere = PauseScope("selector", "pool=gpu"), PauseScope("selector", "")
    assert pause_changes({"data": data}, {gpu: None}) == {own: None, "pause-selector.gpu": None}
    assert pause_changes({"data": data}, {everywhere: None}) == {"pause-selector.x": None}
    written = pause_changes({"data": data}, {gpu: Pause(EPOCH)})
    assert written == {own: f'{{"selector":"pool=gpu","since":"{SINCE}"}}', "pause-selector.gpu": None}
    assert problem_of(PauseScope("selector", "a" * 300)) is None


def test_a_pause_may_say_since_and_until_when_by_whom_and_why() -> None:
    """Each of these fields may be absent; unknown fields are left for later versions."""
    whole = f'{{"since": "{SINCE}", "until": "{SINCE}", "reason": "disk swap", "by": "me", "mood": "bad"}}'
    assert control_state(pause=whole).cluster == Pause(EPOCH, "disk swap", EPOCH, "me")
    assert control_state(pause=f'{{"since": "{SINCE}"}}').cluster == Pause(EPOCH)
    assert control_state(pause='{"reason": "disk swap", "since": null}').cluster == Pause(None, "disk swap")


def test_the_breaker_is_open_or_reset() -> None:
    """The key breaker has the time since which the breaker is open, or the time of the reset."""
    assert control_state(
        breaker='{"open": true, "since": "2030-03-17T17:46:40.250000Z", "cause": "5 of 9 nodes"}'
    ) == ControlState(latch=Latch(EPOCH + 0.25, "5 of 9 nodes"))
    assert control_state(breaker='{"open": false, "reset": "2030-03-17T17:46:40.000001Z"}') == ControlState(
        reset_epoch=EPOCH + 1e-6
    )


def test_a_latch_keeps_that_too_many_nodes_were_out_of_service() -> None:
    """The field makes the next leader hold the pods of these nodes, too; other latches do not have it."""
    latch = Latch(EPOCH, "3 of 8 nodes out of service", out_of_service=True)
    assert control_state(breaker=latch_text(latch)).latch == latch
    assert "outOfService" not in latch_text(Latch(EPOCH, "another cause"))


MALFORMED_PAUSES = {
    "": "its value is not JSON",
    "yes": "its value is not JSON",
    "True": "its value is not JSON",
    "null": "its value is neither true nor false nor an object",
    "0": "its value is neither true nor false nor an object",
    '"false"': "its value is neither true nor false nor an object",
    "[]": "its value is neither true nor false nor an object",
    '{"since": "yesterday"}': "since is not a time",
    '{"since": 1900000000}': "since is not a time",
    '{"since": "0001-01-01T00:00:00Z"}': "since is not a time",
    '{"since": "2030-03-17T17:00:00Z", "until": "2030-03-17T16:59:59Z"}': "until is before since",
    '{"reason": 7}': "reason is not a string",
    '{"since"': "its value is not JSON",
    "[" * 2000: "its value is not JSON",
}


@pytest.mark.parametrize("scope", [EVERYTHING, PauseScope("node", "n1"), PauseScope("namespace", "shop")])
@pytest.mark.parametrize("text", MALFORMED_PAUSES)
def test_a_malformed_pause_holds_its_scope_and_says_why(scope: PauseScope, text: str) -> None:
    """Somebody wanted to pause the scope; nothing else is held."""
    found, [complaint] = read_control_state({"data": {key_of(scope): text}})
    pause = found.pauses().get(scope)
    assert pause is not None
    assert pause.reason.startswith(f"the key {key_of(scope)} is malformed ({MALFORMED_PAUSES[text]})")
    assert len(pause.reason) < 150
    assert complaint == f"{pause.reason}; it holds evictions"
    assert list(found.pauses()) == [scope]
    assert found.latch is None


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("open", "its value is not JSON"),
        ("true", "its value is not an object in which open is true or false"),
        ("{}", "its value is not an object in which open is true or false"),
        ('{"open": "false"}', "its value is not an object in which open is true or false"),
        ('{"open": 0}', "its value is not an object in which open is true or false"),
        ('{"open": true}', "since is missing"),
        (f'{{"open": true, "since": "{SINCE}", "cause": []}}', "cause is not a string"),
        ('{"open": false}', "reset is missing"),
        ('{"open": false, "reset": "now"}', "reset is not a time"),
    ],
)
def test_a_malformed_breaker_is_open_and_says_why(text: str, what: str) -> None:
    """The cause quotes the beginning of the value."""
    found, [_] = read_control_state({"data": {"breaker": text}})
    cause = f"the key breaker is malformed ({what}): {one_line(text, 40)}"
    assert found == ControlState(latch=Latch(UNKNOWN_EPOCH, cause, unreadable=True))


def test_binary_values_are_malformed() -> None:
    """Binary values are not decoded; a binary value under an unknown key holds nothing."""
    found, complaints = read_control_state(
        {"binaryData": {"pause-node.n1": "dHJ1ZQ==", "breaker": "e30=", "logo": "aWNv"}}
    )
    assert found.nodes["n1"].reason == "the key pause-node.n1 is malformed (its value is not a string)"
    cause = "the key breaker is malformed (its value is not a string)"
    assert found.latch == Latch(UNKNOWN_EPOCH, cause, unreadable=True)
    assert len(complaints) == 3


@pytest.mark.parametrize(
    "key", ["Pause", "pause-node", "pause-node.", "pause-pod.x", "pauses", "breaker2", "pause_node.x"]
)
def test_an_unknown_key_holds_nothing_and_is_named(key: str) -> None:
    """The key may belong to a later version, or be mistyped."""
    assert read_control_state({"data": {key: "true"}}) == (
        ControlState(),
        [f"the key {key} is unknown to this version and ignored"],
    )


def test_control_state_is_read_back_as_it_was_written() -> None:
    """Times of pauses are kept to the second, those of the breaker to the microsecond."""
    for pause in (Pause(), Pause(EPOCH), Pause(None, "disk swap"), Pause(EPOCH, 'a "quoted" reason – ✂')):
        assert control_state(pause=pause_text(pause)).cluster == pause
    latch = Latch(EPOCH + 0.000001, "5 of 9 nodes (55.6 %)")
    assert control_state(breaker=latch_text(latch)).latch == latch
    assert control_state(breaker=reset_text(EPOCH + 0.5)).reset_epoch == EPOCH + 0.5


def test_a_malformed_breaker_that_is_written_again_can_be_read() -> None:
    """Somebody has removed the key; the latch stands until a reset, and nothing is malformed any more."""
    found, [_] = read_control_state({"data": {"breaker": "opne"}})
    assert found.latch is not None
    assert control_state(breaker=latch_text(found.latch)).latch == Latch(found.latch.since_epoch, found.latch.cause)


@pytest.mark.parametrize(("until", "read"), [(0.0, 0.0), (0.001, 1.0), (0.5, 1.0), (1.0, 1.0)])
def test_a_pause_does_not_end_before_its_time(until: float, read: float) -> None:
    """Times are whole seconds, so an end within a second is rounded up."""
    assert control_state(pause=pause_text(Pause(EPOCH - 9.5, until_epoch=EPOCH + until))).cluster == Pause(
        EPOCH - 10, until_epoch=EPOCH + read
    )


def test_texts_are_short_lines() -> None:
    """Neither control characters nor very long texts reach a terminal or the log, whoever wrote them."""
    novel = "a\nb\x1b[31m \u202e" + "x" * 5000
    [found] = {control_state(pause=pause_text(Pause(None, novel))).cluster}
    assert found is not None
    assert found.reason.startswith("a b [31m xxx")
    assert len(found.reason) == 300
    assert control_state(breaker=latch_text(Latch(EPOCH, novel))).latch == Latch(EPOCH, found.reason)
    _, [complaint] = read_control_state({"data": {"pause": novel}})
    assert len(complaint) < 150


def test_bytes_that_are_no_text_can_be_given_as_a_reason() -> None:
    """A terminal with another encoding passes such bytes as surrogates, which are left out."""
    assert control_state(pause=pause_text(Pause(None, "caf\udce9"))).cluster == Pause(None, "caf")


@pytest.mark.parametrize(
    ("scope", "fits"),
    [
        (PauseScope("node", "n" * 242), True),
        (PauseScope("node", "n" * 243), False),
        (PauseScope("namespace", "n" * 63), True),
        (PauseScope("node", "a/b"), False),
        (PauseScope("node", "n1\n"), False),
        (PauseScope("node", ""), False),
        (EVERYTHING, True),
    ],
)
def test_a_name_that_no_key_can_hold_has_a_problem(scope: PauseScope, fits: bool) -> None:
    """A key of a ConfigMap has at most 253 characters, and may not have all that people type."""
    problem = problem_of(scope)
    assert (problem is None) is fits
    assert problem is None or f"{scope.kind} '{one_line(scope.name)}' cannot be paused by name" in problem


def test_paused_scopes_come_the_widest_first() -> None:
    """The pause of all evictions comes first, then nodes by name, then namespaces."""
    all_of_it = ControlState(Pause(), {"b": Pause(), "a": Pause()}, {"shop": Pause()})
    assert [key_of(scope) for scope in all_of_it.pauses()] == [
        "pause", "pause-node.a", "pause-node.b", "pause-namespace.shop",
    ]  # fmt: skip
    assert ControlState(latch=Latch(1.0, "")).pauses() == {}


def test_no_adoption_is_written_like_a_pause_and_confirmed_by_a_holder() -> None:
    """People may write the key by hand: true is enough, and false lets pods be adopted."""
    assert control_state(no_adoption="true") == ControlState(no_adoption=Pause())
    found = control_state(no_adoption=pause_text(Pause(EPOCH, "getting out")), no_adoption_confirmed='"replica-1"')
    assert (found.no_adoption, found.no_adoption_confirmed_by) == (Pause(EPOCH, "getting out"), "replica-1")
    assert control_state(no_adoption="false") == ControlState()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"no-adoption": "maybe"}, ("the key no-adoption is malformed (its value is not JSON): maybe", "")),
        ({"no-adoption": "true", "no-adoption-confirmed": "replica-1"}, ("", "")),
        ({"no-adoption": "true", "no-adoption-confirmed": "1"}, ("", "")),
    ],
)
def test_an_unreadable_value_allows_no_adoption_and_confirms_nothing(data: dict[str, str], expected: object) -> None:
    """The attempt to end adoption is not ignored, and there is one complaint."""
    found, complaints = read_control_state({"data": data})
    assert found.no_adoption is not None
    assert (found.no_adoption.reason, found.no_adoption_confirmed_by) == expected
    assert len(complaints) == 1


def test_a_binary_value_of_no_adoption_allows_no_adoption() -> None:
    """The value is not decoded; the key shows that somebody wants to end adoption."""
    found, complaints = read_control_state({"binaryData": {"no-adoption": "dHJ1ZQ=="}})
    assert found.no_adoption is not None
    assert len(complaints) == 1


# The format


def test_the_known_format_is_no_pause_and_no_complaint() -> None:
    """A leader adds the key to each ConfigMap that it takes over; one without it is read as well."""
    assert control_state(format="1", pause_node__n1="true") == ControlState(nodes={"n1": Pause()})
    assert (has_format({"data": {"format": "1"}}), has_format({"data": {"pause": "true"}})) == (True, False)


@pytest.mark.parametrize(
    ("data", "changes", "expected"),
    [
        ({}, {"pause": "true"}, {"pause": "true"}),
        ({}, {X: "{}"}, {X: "{}", "format": "2-new"}),
        ({"format": "1"}, {X: "{}"}, {X: "{}", "format": "2"}),
        (
            {"format": "2", X: "{}"},
            {X: None},
            {X: None, "format": "1"},
        ),
        (
            {"format": "2", X: "{}", Y: ""},
            {X: None},
            {X: None},
        ),
        ({"format": "2-new", X: "{}"}, {"format": "1"}, {"format": "2"}),
        (
            {"format": "2-new", X: "{}"},
            {X: None},
            {X: None, "format": None},
        ),
        ({"format": "2-new", X: "{}"}, {}, {}),
        ({"format": "1", X: "{}"}, {}, {"format": "2"}),
        ({X: "{}"}, {}, {"format": "2-new"}),
        ({"format": "2"}, {}, {"format": "1"}),
        ({}, {"format": "1"}, {"format": "1"}),
        ({"format": "1"}, {}, {}),
    ],
)
def test_the_format_is_2_as_long_as_there_are_selectors(
    data: dict[str, str], changes: dict[str, str | None], expected: dict[str, str | None]
) -> None:
    """Only a leader says that it has taken the ConfigMap over; others leave that as it is."""
    assert with_format({"data": data}, changes) == expected
    after = {key: text for key, text in {**data, **expected}.items() if text is not None}
    assert not read_control_state({"data": after})[0].unfit
    if not changes:
        assert read_control_state({"data": data})[0].unfit is bool(expected)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ({"format": "3"}, "has format 3, and this version knows formats 1 and 2 only"),
        ({"format": "one"}, "has format one, and this version knows formats 1 and 2 only"),
        ({"format": ""}, "has format , and this version knows formats 1 and 2 only"),
        ({"format": "1" * 500}, f"has format {'1' * 39}…, and this version knows formats 1 and 2 only"),
        ({f"pause-selector.{number}": "x" for number in range(101)}, "has 101 pauses by selectors, more than 100"),
        ({f"pause-node.n{number}": "true" for number in range(MAX_KEYS + 1)}, "has 1001 keys, more than 1000"),
        ({f"x{number}": "" for number in range(25_000)}, "has 25000 keys, more than 1000"),
    ],
)
def test_what_this_version_cannot_read_holds_everything_and_is_told_in_one_line(data: dict[str, str], why: str) -> None:
    """No key is read: a newer version may mean something else by it, and many would take long."""
    held = Pause(reason=f"the ConfigMap {why}")
    assert read_control_state({"data": data}) == (
        ControlState(held, no_adoption=held),
        [f"it {why}: nothing is evicted, and nothing is adopted"],
    )


def test_a_thousand_keys_are_read() -> None:
    """As many nodes can be paused one by one."""
    data = {f"pause-node.n{number}": "true" for number in range(MAX_KEYS)}
    assert len(read_control_state({"data": data})[0].nodes) == 1000
