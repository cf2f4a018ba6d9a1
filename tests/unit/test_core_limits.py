"""Token buckets: how many evictions may begin when, and what happens to a reserved or used token."""

import math

import pytest
from tests.memory import kept

from taint_eviction.core import limits
from taint_eviction.core.limits import Limits, Token, TokenBucket
from taint_eviction.core.policy import EvictionPolicy, Limit, PolicyRule


def sent(bucket: TokenBucket, now: float) -> Token:
    """Begin and send an eviction at once."""
    assert bucket.has_room(now)
    token = bucket.begin()
    bucket.send(token, now)
    return token


def evicted(bucket: TokenBucket, now: float) -> None:
    """Begin, send and end an eviction at once."""
    bucket.end(sent(bucket, now), ended_pod=True)


def room(bucket: TokenBucket, now: float) -> int:
    """Count how many evictions may begin now."""
    count = 0
    while bucket.has_room(now):
        bucket.begin()
        count += 1
    return count


# In the long run


def test_the_burst_begins_at_once_and_the_rest_at_the_rate() -> None:
    """Three begin at once, then one each half second, counted from the last one that was sent."""
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
def test_there_is_room_at_exactly_the_announced_instant(rate: float, start: float) -> None:
    """Floating-point errors never make a caller that wakes up then wait for the same instant again."""
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


def test_no_more_tokens_are_saved_than_the_burst() -> None:
    """This applies however long no eviction begins."""
    bucket = TokenBucket(Limit(5.0, 2))
    evicted(bucket, 0)
    assert room(bucket, 1000) == 2


@pytest.mark.parametrize(("rate", "burst"), [(0.1, 1), (1.0, 1), (2.5, 3), (10.0, 10)])
def test_the_default_burst_is_one_seconds_tokens_and_at_least_one(rate: float, burst: int) -> None:
    """A limit may consist of a rate alone."""
    assert room(TokenBucket(Limit(rate)), 0) == burst


def test_a_fraction_of_a_token_is_kept() -> None:
    """One and a half tokens have grown and one is used: the half is kept for the next."""
    bucket = TokenBucket(Limit(1.0, 2))
    evicted(bucket, 0)
    evicted(bucket, 0)
    evicted(bucket, 1.5)
    assert bucket.room_at() == 2.0


# In flight


def test_at_once_limits_evictions_that_have_not_ended() -> None:
    """They count whether or not they were sent; only an end makes room, time does not."""
    bucket = TokenBucket(Limit(at_once=2))
    first, second = bucket.begin(), bucket.begin()
    bucket.send(second, 0)
    assert bucket.room_at() is None
    assert not bucket.has_room(1e9)
    bucket.end(second, ended_pod=True)
    assert bucket.room_at() == -math.inf
    bucket.end(first, ended_pod=False)
    assert room(bucket, 0) == 2


def test_rate_and_at_once_both_apply() -> None:
    """First too many evictions are in flight, then too few tokens are left."""
    bucket = TokenBucket(Limit(1.0, 2, at_once=1))
    token = sent(bucket, 0)
    assert bucket.room_at() is None
    bucket.end(token, ended_pod=True)
    evicted(bucket, 0)
    assert bucket.room_at() == 1.0


def test_a_reserved_token_is_not_given_to_another_eviction() -> None:
    """With a burst of two, two have begun: a third waits until one of them is sent or ends."""
    bucket = TokenBucket(Limit(1.0, 2))
    first, second = bucket.begin(), bucket.begin()
    assert bucket.room_at() is None
    assert not bucket.has_room(1e9)
    bucket.send(first, 5)
    assert bucket.room_at() == 6.0
    bucket.end(second, ended_pod=False)
    assert bucket.room_at() == 5.0


def test_the_next_token_grows_while_another_is_reserved() -> None:
    """Two of three tokens are used and one is reserved: the next token is there after a second."""
    bucket = TokenBucket(Limit(1.0, 3))
    evicted(bucket, 0)
    evicted(bucket, 0)
    bucket.begin()
    assert bucket.room_at() == 1.0


# What comes back


def test_an_eviction_called_off_before_it_is_sent_costs_nothing() -> None:
    """Its token was only reserved."""
    bucket = TokenBucket(Limit(1.0, 1))
    bucket.end(bucket.begin(), ended_pod=True)
    assert bucket.has_room(0)
    assert bucket.room_at() == -math.inf


def test_an_eviction_that_ended_no_pod_returns_its_token() -> None:
    """A budget refused it, so it counts as if it had not been sent."""
    bucket = TokenBucket(Limit(1.0, 1))
    token = sent(bucket, 0)
    assert bucket.room_at() == 1.0
    bucket.end(token, ended_pod=False)
    assert bucket.has_room(0.1)


def test_an_eviction_that_may_have_ended_a_pod_keeps_its_token() -> None:
    """A missing answer is no reason to send more."""
    bucket = TokenBucket(Limit(1.0, 1))
    bucket.end(sent(bucket, 0), ended_pod=True)
    assert bucket.room_at() == 1.0


def test_a_token_that_has_grown_again_meanwhile_does_not_come_back() -> None:
    """The refusal took a second, in which the token grew again and was used: with a burst of one, a third one waits."""
    bucket = TokenBucket(Limit(1.0, 1))
    blocked = sent(bucket, 0)
    evicted(bucket, 1)
    bucket.end(blocked, ended_pod=False)
    assert bucket.room_at() == 2.0


def test_only_the_part_of_a_token_that_has_not_grown_again_comes_back() -> None:
    """With a burst of two, half a token has grown after half a second, so the refusal returns only the other half."""
    bucket = TokenBucket(Limit(1.0, 2))
    blocked = sent(bucket, 0)
    evicted(bucket, 0.5)
    assert bucket.room_at() == 1.0
    bucket.end(blocked, ended_pod=False)
    assert bucket.room_at() == 0.5
    evicted(bucket, 0.5)
    assert bucket.room_at() == 1.5


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (1, 2, 0)])
def test_the_order_of_the_answers_does_not_change_what_is_left(order: tuple[int, ...]) -> None:
    """Of four evictions, three ended no pod: as many tokens are left as if only the fourth had been sent."""
    bucket = TokenBucket(Limit(0.125, 4))
    tokens = [sent(bucket, at) for at in (0.0, 1.0, 2.0)]
    evicted(bucket, 3)
    for number in order:
        bucket.end(tokens[number], ended_pod=False)
    assert room(bucket, 3) == 3
    assert TokenBucket.is_idle(bucket, 1e9) is False
    lone = TokenBucket(Limit(0.125, 4))
    evicted(lone, 3)
    assert room(lone, 3) == 3
    assert bucket.room_at() == lone.room_at()


def test_answered_evictions_are_forgotten() -> None:
    """The bucket remembers only evictions whose tokens may still come back, and those that were sent after them."""
    bucket = TokenBucket(Limit(100.0, 10))
    first = sent(bucket, 0)
    for number in range(5):
        evicted(bucket, 1.0 + number)
    assert len(kept(bucket, Token)) == 6
    bucket.end(first, ended_pod=True)
    assert kept(bucket, Token) == []


# Other limits


def test_a_stricter_limit_reduces_the_saved_tokens() -> None:
    """The burst changes from ten to two: two tokens are left."""
    bucket = TokenBucket(Limit(1.0, 10))
    bucket.change(Limit(1.0, 2), 5)
    assert room(bucket, 5) == 2


def test_a_full_bucket_is_full_under_another_limit() -> None:
    """A new bucket would be full as well."""
    bucket = TokenBucket(Limit(1.0, 2))
    evicted(bucket, 0)
    bucket.change(Limit(3.0, 5), 1)
    assert room(bucket, 1) == 5


def test_a_milder_limit_adds_no_tokens_at_once() -> None:
    """Used tokens stay used, and new ones grow at the new rate from then on."""
    bucket = TokenBucket(Limit(1.0, 1))
    evicted(bucket, 0)
    bucket.change(Limit(10.0, 5), 0.5)
    assert bucket.room_at() == 0.5 + 0.05
    evicted(bucket, 0.55)
    assert room(bucket, 100) == 5


def test_a_token_sent_before_a_change_does_not_come_back_after_it() -> None:
    """The token may belong to another limit by then; the end of its eviction still makes room in flight."""
    bucket = TokenBucket(Limit(1.0, 2, at_once=1))
    token = sent(bucket, 0)
    bucket.change(Limit(1.0, 2, at_once=1), 0)
    assert bucket.room_at() is None
    bucket.end(token, ended_pod=False)
    assert room(bucket, 0) == 1
    assert kept(bucket, Token) == []


def test_after_a_change_nothing_is_counted_twice() -> None:
    """Two evictions were sent before the change, and one ended no pod: the number of tokens stays the same."""
    bucket = TokenBucket(Limit(1.0, 2))
    blocked, other = sent(bucket, 0), sent(bucket, 0)
    bucket.change(Limit(1.0, 2), 0)
    bucket.end(blocked, ended_pod=False)
    assert bucket.room_at() == 1.0
    bucket.end(other, ended_pod=True)
    assert bucket.room_at() == 1.0


def test_a_rate_may_be_removed_and_added_again() -> None:
    """Without a rate, no token is counted; with a new one, the bucket holds no more than its burst."""
    bucket = TokenBucket(Limit(1.0, 1))
    bucket.change(Limit(at_once=50), 0)
    for _ in range(20):
        evicted(bucket, 1)
    assert bucket.room_at() == -math.inf
    bucket.change(Limit(1.0, 3), 2)
    assert room(bucket, 2) == 3


def test_a_bucket_is_idle_if_it_is_full_and_nothing_has_begun() -> None:
    """A new bucket would be equal."""
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


def test_an_eviction_is_limited_in_total_by_node_by_namespace_and_by_rule() -> None:
    """Each of these limits has its own bucket; all pods that a rule governs share the rule's bucket."""
    all_of_them = Limits(EvictionPolicy(total=Limit(4.0), per_node=Limit(3.0), per_namespace=Limit(2.0), rules=(RULE,)))
    one = all_of_them.buckets("n1", "shop", "slow", 0)
    assert [limit.per_second for bucket in one for limit in kept(bucket, Limit)] == [4.0, 3.0, 2.0, 1.0]
    assert all_of_them.buckets("n1", "shop", "slow", 0) == one
    assert all_of_them.buckets("n1", "shop", "", 0) == one[:3]
    other = all_of_them.buckets("n2", "bank", "slow", 0)
    assert [same is before for same, before in zip(other, one, strict=True)] == [True, False, False, True]
    assert len(all_of_them) == 6


def test_names_of_nodes_namespaces_and_rules_are_not_mixed_up() -> None:
    """A node, a namespace and a rule with the same name have three buckets."""
    rule = PolicyRule("x", limit=Limit(1.0))
    buckets = Limits(EvictionPolicy(per_node=Limit(1.0), per_namespace=Limit(1.0), rules=(rule,))).buckets(
        "x", "x", "x", 0
    )
    assert len(set(buckets)) == 3


def test_an_unlimited_eviction_has_no_bucket() -> None:
    """A rule without a limit has no bucket either."""
    assert Limits(EvictionPolicy()).buckets("n1", "shop", "slow", 0) == ()
    only_node = Limits(EvictionPolicy(per_node=Limit(1.0), rules=(PolicyRule("free"),)))
    assert len(only_node.buckets("n1", "shop", "free", 0)) == 1
    assert len(Limits(EvictionPolicy(rules=(RULE,))).buckets("n1", "shop", "slow", 0)) == 1
    assert Limits(EvictionPolicy(rules=(RULE,))).buckets("n1", "shop", "", 0) == ()


def test_another_policy_changes_the_buckets_that_stay_and_drops_the_others() -> None:
    """Used tokens stay used where the new policy still has a limit."""
    these = Limits(EvictionPolicy(total=Limit(1.0), per_node=Limit(1.0), rules=(RULE,)))
    whole, node, rule = these.buckets("n1", "shop", "slow", 0)
    evicted(whole, 0)
    these.change(EvictionPolicy(total=Limit(0.5), per_namespace=Limit(7.0), rules=(RULE,)), 0)
    again = these.buckets("n1", "shop", "slow", 0)
    assert again[0] is whole
    assert whole.room_at() == 2.0
    assert node not in again
    assert again[2] is rule
    assert [limit.per_second for bucket in again for limit in kept(bucket, Limit)] == [0.5, 7.0, 1.0]
    these.change(EvictionPolicy(), 0)
    assert len(these) == 0
    assert these.buckets("n1", "shop", "slow", 0) == ()


def test_idle_buckets_are_removed_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buckets in use stay; an idle one is created anew when it is needed."""
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


def test_buckets_in_use_are_not_searched_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a search that found no idle bucket, the next one comes when there are twice as many."""
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


def test_an_eviction_sent_before_a_change_costs_nothing_more_when_it_fails() -> None:
    """Its token was used before the change."""
    bucket = TokenBucket(Limit(1.0, 2))
    tokens = [bucket.begin(), bucket.begin()]
    for token in tokens:
        bucket.send(token, 0.0)
    bucket.change(Limit(1.0, 1), 0.0)
    bucket.end(tokens[0], ended_pod=False)
    assert bucket.room_at() == 1.0
