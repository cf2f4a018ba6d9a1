"""The command for long explorations: ``python -m tests.simulation.explore``, from the project's root.

Without options it plays new seeds for ten minutes. ``--seed`` plays one seed, ``--file`` a scenario, ``--sieve`` the
three patterns of Sieve over the whole catalogue; ``--bug`` first puts a known mistake into the controller; and
``--mistakes`` measures by how many seeds each of them is found. For each broken rule it prints a command that replays
the run, and a shrunk timeline; then the exit code is 1.
"""

import itertools
import multiprocessing
import random
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import click
import pytest
from tests.simulation.exploring.generator import made_up
from tests.simulation.exploring.playing import LEFT_OUT, Played, as_text, play, play_scenario
from tests.simulation.exploring.shrinking import shrunk
from tests.simulation.known_bugs import KNOWN_BUGS, NEEDED

from taint_eviction.runtime.clock import read_monotonic
from taint_eviction_lab.simulation.scenario import read_scenario

COMMAND = "PYTHONPATH=operator:. python -m tests.simulation.explore"
# At most this many failures are shrunk and shown; for the others only the seeds are printed.
_MAX_SHOWN = 3
# Of this many seeds, a known mistake should be found by at least so many: then no more are played with it.
_MEASURED, _ENOUGH = 60, 5


@click.command()
@click.option("--seed", type=int, help="Play this seed alone, and show what breaks.")
@click.option("--from", "first", type=int, help="The first seed; at random by default.")
@click.option("--runs", type=int, help="Play this many seeds, however long it takes.")
@click.option("--minutes", type=float, default=10.0, show_default=True, help="Play new seeds for this many minutes.")
@click.option(
    "--file", type=click.Path(path_type=Path, exists=True), help="Play this scenario file as explorations do."
)
@click.option("--sieve", is_flag=True, help="Crash, lag and drop over every scenario of the catalogue.")
@click.option(
    "--every",
    type=int,
    default=1,
    show_default=True,
    help="With --sieve: 2 for about half of the scenarios, and so on.",
)
@click.option("--mistakes", is_flag=True, help="Measure by how many seeds each known mistake is found.")
@click.option("--bug", type=click.Choice(sorted(KNOWN_BUGS)), help="First put this known mistake into the controller.")
@click.option("--jobs", type=int, default=multiprocessing.cpu_count(), show_default=True, help="Processes.")
@click.option(
    "--write", type=click.Path(path_type=Path, file_okay=False), help="Write shrunk scenarios to this folder."
)
def main(
    *,
    seed: int | None,
    first: int | None,
    runs: int | None,
    minutes: float,
    file: Path | None,
    sieve: bool,
    every: int,
    mistakes: bool,
    bug: str | None,
    jobs: int,
    write: Path | None,
) -> None:
    """Explore, and print what was found."""
    if mistakes:
        measure(0 if first is None else first, runs or _MEASURED, jobs, [*KNOWN_BUGS] if bug is None else [bug])
        return
    if bug is not None:
        KNOWN_BUGS[bug](pytest.MonkeyPatch())
    if file is not None:
        played = play_scenario(read_scenario(file.read_text(encoding="utf-8"), file.name))
        show(f"{file}", played)
        sys.exit(bool(played.violations))
    if sieve:
        from tests.simulation.exploring.sieve import sieve_catalogue  # noqa: PLC0415 - only here

        sys.exit(not sieve_catalogue(jobs, every))
    if seed is not None:
        sys.exit(not explain(seed, write, bug))
    begin = random.SystemRandom().randrange(10**6, 10**9) if first is None else first
    sys.exit(not explore(range(begin, begin + runs) if runs else _for_minutes(begin, minutes), jobs, write, bug))


def measure(first: int, runs: int, jobs: int, names: list[str]) -> None:
    """Print a table: by how many of these seeds each known mistake is found, until enough have found it."""
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("fork")) as pool:
        click.echo("| mistake | found by | rule |\n|---|---|---|")
        for line in pool.map(_measured, names, itertools.repeat(first), itertools.repeat(runs)):
            click.echo(line)


def _measured(name: str, first: int, runs: int) -> str:
    """Play seeds with a known mistake until enough have found it; return the line of the table."""
    found, tried, rules = 0, 0, dict[str, int]()
    for seed in range(first, first + runs):
        tried += 1
        document = made_up(seed)
        if NEEDED.get(name, "") not in str(document):
            continue
        with pytest.MonkeyPatch.context() as patch:
            KNOWN_BUGS[name](patch)
            broken = {violation.rule for violation in play(document).violations}
        found += bool(broken)
        for rule in sorted(broken):
            rules[rule] = rules.get(rule, 0) + 1
        if found == _ENOUGH:
            break
    told = ", ".join(f"{rule} ({count})" for rule, count in sorted(rules.items(), key=lambda one: -one[1]))
    return f"| {name} | {found} of {tried} | {told} |"


def _for_minutes(begin: int, minutes: float) -> Iterator[int]:
    until, seed = read_monotonic() + minutes * 60, begin
    while read_monotonic() < until:
        yield seed
        seed += 1


def explore(seeds: Iterable[int], jobs: int, write: Path | None, bug: str | None) -> bool:
    """Play seeds, print those that fail, show the first few failures, and count. Return whether no rule was broken."""
    started_at = read_monotonic()
    runs, simulated, deletes, failed = 0, 0.0, 0, dict[str, list[int]]()
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("fork")) as pool:
        for batch in _batches(seeds, 8 * jobs):
            for seed, rule, seconds, count in pool.map(_play_seed, batch):
                runs, simulated, deletes = runs + 1, simulated + seconds, deletes + count
                if rule:
                    failed.setdefault(rule, []).append(seed)
                    click.echo(f"seed {seed} breaks {rule!r}")
    elapsed = read_monotonic() - started_at
    for seed in list(itertools.chain.from_iterable(failed.values()))[:_MAX_SHOWN]:
        explain(seed, write, bug)
    click.echo(
        f"{runs} runs, {simulated / 3600:.1f} simulated hours, {deletes} calls that end pods in {elapsed:.0f} s: "
        f"{runs / elapsed * 60:.0f} runs a minute, {simulated / 3600 / elapsed:.2f} simulated hours a second"
    )
    click.echo("nothing was broken" if not failed else "broken:")
    for rule, seeds_of_rule in failed.items():
        click.echo(f"  {rule}: {len(seeds_of_rule)} seeds, {', '.join(map(str, seeds_of_rule))}")
    return not failed


def _batches(seeds: Iterable[int], size: int) -> Iterator[list[int]]:
    batch: list[int] = []
    for seed in seeds:
        batch.append(seed)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def _play_seed(seed: int) -> tuple[int, str, float, int]:
    played = play(made_up(seed))
    return seed, played.rule, played.seconds, played.deletes


def explain(seed: int, write: Path | None = None, bug: str | None = None) -> bool:
    """Play a seed; if it fails, shrink it, show it and write it as a scenario file. Return whether it was all right."""
    document = made_up(seed)
    played = play(document)
    if not played.violations:
        show(f"seed {seed}", played)
        return True
    small = shrunk(document, played.rule)
    small["about"] = f"Found by seed {seed} at {_commit()}: {played.rule}."
    click.echo(f"seed {seed} breaks {played.rule!r}; again: {COMMAND} --seed {seed}{f' --bug {bug}' if bug else ''}")
    click.echo(as_text(small))
    show(f"seed {seed}, shrunk", play(small))
    if write is not None:
        write.mkdir(parents=True, exist_ok=True)
        file = write / f"found-{seed}.yaml"
        file.write_text(as_text(small), encoding="utf-8")
        click.echo(f"written to {file}; again: {COMMAND} --file {file}")
    return False


def show(title: str, played: Played) -> None:
    """Print a timeline and the broken rules."""
    for entry in played.timeline:
        if not entry.subject.startswith(LEFT_OUT):
            click.echo(f"{entry.at:9.3f} {entry.what.value:13} {entry.uid or entry.subject}  {entry.why}")
    for violation in played.violations:
        click.echo(f"BROKEN    {violation}")
    click.echo(f"{title}: {len(played.violations)} broken, digest {played.digest[:16]}")


def _commit() -> str:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return commit.stdout.strip() or "an unknown commit"


if __name__ == "__main__":
    main()
