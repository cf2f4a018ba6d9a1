"""The provenance of a release (the predicate of SLSA 1.0): what it was made of, by which script, with which values."""

import json
import sys
from datetime import UTC, datetime
from typing import Any


def provenance(version: str, commit: str, base: str, epoch: int, **parameters: str) -> dict[str, Any]:
    """Return the predicate; ``base`` is the base image with its digest, ``parameters`` what the script was given."""
    image, _, digest = base.partition("@sha256:")
    made = datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "buildDefinition": {
            "buildType": "https://site.invalid/release",
            "externalParameters": {"version": version, **parameters},
            "resolvedDependencies": [
                {"name": "source", "digest": {"gitCommit": commit}},
                {"name": image, "digest": {"sha256": digest}},
            ],
        },
        "runDetails": {
            "builder": {"id": "https://site.invalid/.ci/release"},
            "metadata": {"invocationId": commit, "startedOn": made},
        },
    }


if __name__ == "__main__":
    version_argument, commit_argument, base_argument, epoch_argument, *given = sys.argv[1:]
    named = dict(each.split("=", 1) for each in given)
    print(
        json.dumps(provenance(version_argument, commit_argument, base_argument, int(epoch_argument), **named), indent=2)
    )
