"""Which pods may carry a condition of ours, and to whom its taking back is owed."""

from tests.unit.builders import ref

from taint_eviction.core.conditions import ConditionLedger

A, B = ref(uid="a"), ref("web-1", uid="b")


def test_what_is_owed_keeps_its_time_and_can_be_left() -> None:
    """To be owed again later is no new debt; once left, nothing comes due."""
    ledger = ConditionLedger()
    ledger.owe(A, 5.0)
    ledger.owe(A, 9.0)
    assert ledger.owed.next_fire_at() == 5.0
    ledger.owe_nothing(A)
    assert ledger.owed.next_fire_at() is None


def test_failed_attempts_are_counted_until_the_pod_is_written_off() -> None:
    """A later attempt takes the place of the one that is owed."""
    ledger = ConditionLedger()
    assert (ledger.tries(A), ledger.may_carry(A)) == (0, False)
    ledger.will_mark(A)
    ledger.owe(A, 5.0)
    ledger.try_again(A, 2, 7.0)
    assert (ledger.tries(A), ledger.may_carry(A), ledger.owed.next_fire_at()) == (2, True, 7.0)
    ledger.write_off(A)
    assert (ledger.tries(A), ledger.may_carry(A), ledger.owed.next_fire_at()) == (0, False, None)


def test_all_that_is_remembered_is_counted() -> None:
    """Marks, debts and attempts, of any pod."""
    ledger = ConditionLedger()
    ledger.will_mark(A)
    assert len(ledger) == 1
    ledger.owe(B, 5.0)
    assert len(ledger) == 2
    ledger.try_again(B, 1, 6.0)
    assert len(ledger) == 3
    for pod in (A, B):
        ledger.write_off(pod)
    assert len(ledger) == 0
