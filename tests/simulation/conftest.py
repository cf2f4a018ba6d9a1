"""What explorations say at the end of a test run: how much was played how fast, and what new seeds broke."""

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Sum up what the tests have recorded, in whichever process they ran."""
    reports = [report for outcome in ("passed", "failed") for report in terminalreporter.stats.get(outcome, ())]
    told = [(report.duration, dict(report.user_properties)) for report in reports]
    explored = [(elapsed, properties) for elapsed, properties in told if "runs" in properties]
    if not explored:
        return
    runs = sum(properties["runs"] for _, properties in explored)
    hours = sum(properties["seconds"] for _, properties in explored) / 3600
    elapsed = sum(elapsed for elapsed, _ in explored)
    terminalreporter.section("explorations")
    terminalreporter.line(
        f"{runs} runs, {hours:.1f} simulated hours in {elapsed:.0f} s of one process: "
        f"{runs / elapsed * 60:.0f} runs a minute, {hours / elapsed:.2f} simulated hours a second"
    )
    found = [text for _, properties in explored for text in properties["found"]]
    for text in found or ["nothing was broken"]:
        terminalreporter.line(text)
