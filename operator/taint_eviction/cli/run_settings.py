"""The values of the flags of ``taint-eviction run`` → settings."""

from dataclasses import replace
from typing import Any

from taint_eviction.cli.run_flags import settings_of
from taint_eviction.settings import (
    BREAKER,
    DECISIONS,
    LIMITS,
    POLICY,
    TABLE,
    ControlStateSettings,
    Settings,
    default_lease_name,
)


def read_settings(flags: dict[str, Any]) -> Settings:
    """Turn the values of the flags into settings; the rules of ``--config`` are left out."""
    settings = settings_of(flags, TABLE)
    lease_name, elects = flags["leader_elect_resource_name"], flags["leader_elect"]
    if elects is None:
        # A dry run from a shell would be a standby of the one in the cluster, and report nothing.
        elects = not settings.dry_run or lease_name is not None
    if lease_name is None:
        lease_name = default_lease_name(dry_run=settings.dry_run)
    return replace(
        settings,
        control_state=ControlStateSettings(name=lease_name),
        election=replace(
            settings.election,
            enabled=elects,
            lease_name=lease_name,
            lease_namespace=flags["leader_elect_resource_namespace"] or "",
        ),
    )


def read_deciding_settings(flags: dict[str, Any]) -> Settings:
    """Turn the values of ``deciding_flags`` into settings; all others have their defaults."""
    return settings_of(flags, (*DECISIONS, *POLICY, *LIMITS, *BREAKER))
