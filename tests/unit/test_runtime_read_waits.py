"""For how long the answer to a read is waited for."""

from taint_eviction.runtime.read_waits import ReadWaits


def test_the_wait_doubles_with_each_answer_that_does_not_come_up_to_half_a_minute() -> None:
    """Reads that waited at the same time count once."""
    waits, seen = ReadWaits(10.0), []
    for _ in range(4):
        seen.append(waits.seconds("nodes"))
        for _ in range(3):
            waits.unanswered("nodes", seen[-1])
    assert seen == [10.0, 20.0, 30.0, 30.0]
    assert waits.seconds("pods") == 10.0


def test_a_longer_timeout_than_half_a_minute_stays() -> None:
    """The wait is never shorter than at first."""
    waits = ReadWaits(45.0)
    waits.unanswered("nodes", 45.0)
    assert waits.seconds("nodes") == 45.0


def test_only_an_answer_that_came_soon_ends_the_longer_wait() -> None:
    """One that came late says that the next one may come late, too."""
    waits = ReadWaits(10.0)
    waits.unanswered("nodes", 10.0)
    waits.answered("nodes", 12.0)
    assert waits.seconds("nodes") == 20.0
    waits.answered("nodes", 0.1)
    assert waits.seconds("nodes") == 10.0


def test_the_oldest_of_many_reads_is_forgotten() -> None:
    """Memory is bounded, whatever is read."""
    waits = ReadWaits(10.0)
    for number in range(1_001):
        waits.unanswered(number, 10.0)
    assert (waits.seconds(0), waits.seconds(1)) == (10.0, 20.0)
