"""Token buckets: what may begin when, and what becomes of a token that was spoken for or taken."""

import math

import pytest

from taint_eviction.core import limits
from taint_eviction.core.limits import Limits, Token, TokenBucket
from taint_eviction.core.policy import EvictionPolicy, Limit, PolicyRule


def sent(bucket: TokenBucket, now: float) -> Token:
    """Begin and send at once."""
    assert bucket.has_room(now)
    token = bucket.begin()
    bucket.send(token, now)
    return token


def evicted(bucket: TokenBucket, now: float) -> None:
    """Begin, send and end at once."""
    bucket.end(sent(bucket, now), ended_pod=True)


def room(bucket: TokenBucket, now: float) -> int:
    """Count how many may begin now."""
    count = 0
    while bucket.has_room(now):
        bucket.begin()
        count += 1
    return count


# In the long run


def test_the_burst_goes_at_once_and_the_rest_as_it_grows() -> None:
    """Three at once, then one each half second, from the last one that was sent."""
    bucket = TokenBucket(Limit(2.0, 3))
    assert bucket.room_at() == -math.inf
    for _ in range(3):
        evicted(bucket, 10)
    assert not bucket.has_room(10)
    assert bucket.room_at() == 10.5
    assert not bucket.has_room(10.499)
    evicted(bucket, 10.5)
    assert bucket.room_at() == 11.0


@pytest.mark.parametrize("rate", [0.3, 0.7, 3.0, 7.0, 1e3, 12_345.6789])
@pytest.mark.parametrize("start", [0.0, 1e3, 98_765.4321, 1e7])
def test_there_is_room_at_exactly_the_instant_that_was_said(rate: float, start: float) -> None:
    """Whatever floating point makes of it: who wakes then is never told to wait for the same instant again."""
    bucket, now = TokenBucket(Limit(rate, 1)), start
    for _ in range(50):
        evicted(bucket, now)
        at = bucket.room_at()
        assert at is not None
        assert at > now
        assert not bucket.has_room(math.nextafter(at, 0))
        assert bucket.has_room(at)
        now = at
    assert now - start == pytest.approx(50 / rate, rel=1e-4)


def test_no_more_is_saved_up_than_the_burst() -> None:
    """However long nothing goes."""
    bucket = TokenBucket(Limit(5.0, 2))
    evicted(bucket, 0)
    assert room(bucket, 1000) == 2


@pytest.mark.parametrize(("rate", "burst"), [(0.1, 1), (1.0, 1), (2.5, 3), (10.0, 10)])
def test_without_a_burst_it_is_a_seconds_worth_and_at_least_one(rate: float, burst: int) -> None:
    """A rate alone is enough to say."""
    assert room(TokenBucket(Limit(rate)), 0) == burst


def test_a_fraction_of_a_token_is_kept() -> None:
    """One and a half grown since, one taken: half is there for the next."""
    bucket = TokenBucket(Limit(1.0, 2))
    evicted(bucket, 0)
    evicted(bucket, 0)
    evicted(bucket, 1.5)
    assert bucket.room_at() == 2.0


# In flight


def test_at_once_bounds_those_that_have_not_ended() -> None:
    """Sent or not; no time makes room, only an end does."""
    bucket = TokenBucket(Limit(at_once=2))
    first, second = bucket.begin(), bucket.begin()
    bucket.send(second, 0)
    assert bucket.room_at() is None
    assert not bucket.has_room(1e9)
    bucket.end(second, ended_pod=True)
    assert bucket.room_at() == -math.inf
    bucket.end(first, ended_pod=False)
    assert room(bucket, 0) == 2


def test_rate_and_at_once_both_hold() -> None:
    """Tokens enough, hands too few; then hands enough, tokens too few."""
    bucket = TokenBucket(Limit(1.0, 2, at_once=1))
    token = sent(bucket, 0)
    assert bucket.room_at() is None
    bucket.end(token, ended_pod=True)
    evicted(bucket, 0)
    assert bucket.room_at() == 1.0


def test_what_is_spoken_for_is_nobody_elses() -> None:
    """Two begun of a burst of two: a third has to wait until one is sent or ends."""
    bucket = TokenBucket(Limit(1.0, 2))
    first, second = bucket.begin(), bucket.begin()
    assert bucket.room_at() is None
    assert not bucket.has_room(1e9)
    bucket.send(first, 5)
    assert bucket.room_at() == 6.0
    bucket.end(second, ended_pod=False)
    assert bucket.room_at() == 5.0


def test_one_of_several_tokens_spoken_for_leaves_room_for_the_others() -> None:
    """What has not grown yet is waited for on top of what is spoken for."""
    bucket = TokenBucket(Limit(1.0, 3))
    evicted(bucket, 0)
    evicted(bucket, 0)
    bucket.begin()
    assert bucket.room_at() == 1.0


# What comes back


def test_what_is_called_off_before_it_is_sent_costs_nothing() -> None:
    """Its token was only spoken for."""
    bucket = TokenBucket(Limit(1.0, 1))
    bucket.end(bucket.begin(), ended_pod=True)
    assert bucket.has_room(0)
    assert bucket.room_at() == -math.inf


def test_what_ended_no_pod_gives_its_token_back() -> None:
    """A budget said no: as if nothing had been sent."""
    bucket = TokenBucket(Limit(1.0, 1))
    token = sent(bucket, 0)
    assert bucket.room_at() == 1.0
    bucket.end(token, ended_pod=False)
    assert bucket.has_room(0.1)


def test_what_may_have_ended_a_pod_keeps_it() -> None:
    """No answer is no reason to send more."""
    bucket = TokenBucket(Limit(1.0, 1))
    bucket.end(sent(bucket, 0), ended_pod=True)
    assert bucket.room_at() == 1.0


def test_a_token_that_has_grown_again_meanwhile_does_not_come_back() -> None:
    """The no took a second, in which a second one was sent: the burst is one, so a third waits its second."""
    bucket = TokenBucket(Limit(1.0, 1))
    blocked = sent(bucket, 0)
    evicted(bucket, 1)
    bucket.end(blocked, ended_pod=False)
    assert bucket.room_at() == 2.0


def test_only_what_has_not_grown_again_comes_back() -> None:
    """Of a burst of two, after half a second: half a token has grown since, so half a one comes back."""
    bucket = TokenBucket(Limit(1.0, 2))
    blocked = sent(bucket, 0)
    evicted(bucket, 0.5)
    assert bucket.room_at() == 1.0
    bucket.end(blocked, ended_pod=False)
    assert bucket.room_at() == 0.5
    evicted(bucket, 0.5)
    assert bucket.room_at() == 1.5


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (1, 2, 0)])
def test_in_whatever_order_answers_come_the_same_is_left(order: tuple[int, ...]) -> None:
    """Of four that were sent a second apart, three ended nothing: what is left is as if one had been sent."""
    bucket = TokenBucket(Limit(0.125, 4))
    tokens = [sent(bucket, at) for at in (0.0, 1.0, 2.0)]
    evicted(bucket, 3)
    for number in order:
        bucket.end(tokens[number], ended_pod=False)
    assert room(bucket, 3) == 3
    assert TokenBucket.is_idle(bucket, 1e9) is False
    lone = TokenBucket(Limit(0.125, 4))
    evicted(lone, 3)
    assert bucket._level == lone._level


def test_what_has_answered_is_forgotten() -> None:
    """Only what may still come back is remembered, and what was sent after it."""
    bucket = TokenBucket(Limit(100.0, 10))
    first = sent(bucket, 0)
    for number in range(5):
        evicted(bucket, 1.0 + number)
    assert len(bucket._sent) == 6
    bucket.end(first, ended_pod=True)
    assert bucket._sent == {}
    assert bucket._level_before == bucket._level


# Other limits


def test_a_stricter_limit_cuts_what_was_saved_up() -> None:
    """From a burst of ten to one of two: two are left."""
    bucket = TokenBucket(Limit(1.0, 10))
    bucket.change(Limit(1.0, 2), 5)
    assert room(bucket, 5) == 2


def test_a_full_one_is_full_under_another_limit() -> None:
    """As one would be that was not there yet."""
    bucket = TokenBucket(Limit(1.0, 2))
    evicted(bucket, 0)
    bucket.change(Limit(3.0, 5), 1)
    assert room(bucket, 1) == 5


def test_a_milder_limit_gives_nothing_away() -> None:
    """What was used up stays used up, and grows at the new rate from then on."""
    bucket = TokenBucket(Limit(1.0, 1))
    evicted(bucket, 0)
    bucket.change(Limit(10.0, 5), 0.5)
    assert bucket.room_at() == 0.5 + 0.05
    evicted(bucket, 0.55)
    assert room(bucket, 100) == 5


def test_what_was_sent_before_a_change_does_not_come_back_after_it() -> None:
    """It may be the token of another limit by then; its end still frees a hand."""
    bucket = TokenBucket(Limit(1.0, 2, at_once=1))
    token = sent(bucket, 0)
    bucket.change(Limit(1.0, 2, at_once=1), 0)
    assert bucket.room_at() is None
    bucket.end(token, ended_pod=False)
    assert room(bucket, 0) == 1
    assert bucket._sent == {}


def test_after_a_change_nothing_is_counted_twice() -> None:
    """Of two that were sent before it, one ends nothing: what is left is as it was at the change."""
    bucket = TokenBucket(Limit(1.0, 2))
    blocked, other = sent(bucket, 0), sent(bucket, 0)
    bucket.change(Limit(1.0, 2), 0)
    bucket.end(blocked, ended_pod=False)
    assert bucket.room_at() == 1.0
    bucket.end(other, ended_pod=True)
    assert bucket.room_at() == 1.0


def test_to_no_rate_and_back() -> None:
    """Without a rate nothing is counted; with one again, no more than its burst is there."""
    bucket = TokenBucket(Limit(1.0, 1))
    bucket.change(Limit(at_once=50), 0)
    for _ in range(20):
        evicted(bucket, 1)
    assert bucket.room_at() == -math.inf
    bucket.change(Limit(1.0, 3), 2)
    assert room(bucket, 2) == 3


def test_idle_is_full_and_without_anything_begun() -> None:
    """Then a new bucket would be the same."""
    bucket = TokenBucket(Limit(1.0, 2))
    assert bucket.is_idle(0)
    token = bucket.begin()
    assert not bucket.is_idle(0)
    bucket.send(token, 0)
    bucket.end(token, ended_pod=True)
    assert not bucket.is_idle(0.999)
    assert bucket.is_idle(1)
    assert TokenBucket(Limit(at_once=1)).is_idle(0)


# All buckets


RULE = PolicyRule("slow", namespaces=("shop",), limit=Limit(1.0))


def test_an_eviction_is_limited_as_a_whole_by_node_by_namespace_and_by_rule() -> None:
    """Each has a bucket of its own; the rule's is shared by all that it governs."""
    all_of_them = Limits(EvictionPolicy(total=Limit(4.0), per_node=Limit(3.0), per_namespace=Limit(2.0), rules=(RULE,)))
    one = all_of_them.buckets("n1", "shop", "slow", 0)
    assert [bucket._limit.per_second for bucket in one] == [4.0, 3.0, 2.0, 1.0]
    assert all_of_them.buckets("n1", "shop", "slow", 0) == one
    assert all_of_them.buckets("n1", "shop", "", 0) == one[:3]
    other = all_of_them.buckets("n2", "bank", "slow", 0)
    assert [same is before for same, before in zip(other, one, strict=True)] == [True, False, False, True]
    assert len(all_of_them) == 6


def test_names_of_nodes_namespaces_and_rules_are_not_mixed_up() -> None:
    """The same name thrice is three buckets."""
    rule = PolicyRule("x", limit=Limit(1.0))
    buckets = Limits(EvictionPolicy(per_node=Limit(1.0), per_namespace=Limit(1.0), rules=(rule,))).buckets(
        "x", "x", "x", 0
    )
    assert len(set(buckets)) == 3


def test_what_is_not_limited_has_no_bucket() -> None:
    """No limit, no bookkeeping; and a rule without a limit has none either."""
    assert Limits(EvictionPolicy()).buckets("n1", "shop", "slow", 0) == ()
    only_node = Limits(EvictionPolicy(per_node=Limit(1.0), rules=(PolicyRule("free"),)))
    assert len(only_node.buckets("n1", "shop", "free", 0)) == 1
    assert len(Limits(EvictionPolicy(rules=(RULE,))).buckets("n1", "shop", "slow", 0)) == 1
    assert Limits(EvictionPolicy(rules=(RULE,))).buckets("n1", "shop", "", 0) == ()


def test_another_policy_changes_the_buckets_that_stay_and_drops_the_others() -> None:
    """What was used up stays used up where there is still a limit."""
    these = Limits(EvictionPolicy(total=Limit(1.0), per_node=Limit(1.0), rules=(RULE,)))
    whole, node, rule = these.buckets("n1", "shop", "slow", 0)
    evicted(whole, 0)
    these.change(EvictionPolicy(total=Limit(0.5), per_namespace=Limit(7.0), rules=(RULE,)), 0)
    again = these.buckets("n1", "shop", "slow", 0)
    assert again[0] is whole
    assert whole.room_at() == 2.0
    assert node not in again
    assert again[2] is rule
    assert [bucket._limit.per_second for bucket in again] == [0.5, 7.0, 1.0]
    these.change(EvictionPolicy(), 0)
    assert len(these) == 0
    assert these.buckets("n1", "shop", "slow", 0) == ()


def test_idle_buckets_go_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those in use stay; those that are as good as new are made anew when they are needed."""
    monkeypatch.setattr(limits, "_MAX_IDLE", 4)
    these = Limits(EvictionPolicy(per_node=Limit(1.0)))
    [busy] = these.buckets("busy", "shop", "", 0)
    [tired] = these.buckets("tired", "shop", "", 0)
    busy.begin()
    evicted(tired, 9.5)
    for number in range(2):
        these.buckets(f"idle-{number}", "shop", "", 10)
    assert len(these) == 4
    these.buckets("one-more", "shop", "", 10)
    assert len(these) == 3
    assert these.buckets("busy", "shop", "", 10) == (busy,)
    assert these.buckets("tired", "shop", "", 10) == (tired,)


def test_buckets_that_stay_in_use_are_not_gone_through_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a search that found little, twice as many may come before the next."""
    monkeypatch.setattr(limits, "_MAX_IDLE", 4)
    searched: list[float] = []
    is_idle = TokenBucket.is_idle

    def searching(self: TokenBucket, now: float) -> bool:
        searched.append(now)
        return is_idle(self, now)

    monkeypatch.setattr(TokenBucket, "is_idle", searching)
    these = Limits(EvictionPolicy(per_node=Limit(1.0)))
    for number in range(64):
        [bucket] = these.buckets(f"n{number}", "shop", "", 0)
        bucket.begin()
    assert len(these) == 64
    assert len(searched) == 4 + 8 + 16 + 32


def test_what_was_sent_under_another_limit_costs_no_more_when_it_fails() -> None:
    """It was paid for before the change."""
    bucket = TokenBucket(Limit(1.0, 2))
    tokens = [bucket.begin(), bucket.begin()]
    for token in tokens:
        bucket.send(token, 0.0)
    bucket.change(Limit(1.0, 1), 0.0)
    bucket.end(tokens[0], ended_pod=False)
    assert bucket.room_at() == 1.0
