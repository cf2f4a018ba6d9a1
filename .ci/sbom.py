"""The software bill of materials of the image (CycloneDX 1.6), made from requirements.lock and the base image.

It lists what the Dockerfile installs, the base image with its digest, and, where the image was built, the packages of
Debian in it. These are the lines ``PACKAGE VERSION ARCHITECTURE`` of dpkg-query.
"""

import json
import re
import sys
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

NAME = "taint-eviction"
# It builds the wheel inside the image, and is removed from it.
NOT_IN_THE_IMAGE = {"setuptools"}
_PIN = re.compile(r"^(?P<name>[a-z0-9-]+)==(?P<version>\S+) \\\n(?P<rest>(?:    .*\n?)*)", re.MULTILINE)


def sbom(lock: str, version: str, epoch: int, base: str, packages: str = "") -> dict[str, Any]:
    """Return the document for a lock file, a base image with its digest, and the packages in it.

    Equal input gives an equal document.
    """
    pins = [pin.groupdict() for pin in _PIN.finditer(lock)]
    references = {pin["name"]: f"pkg:pypi/{pin['name']}@{pin['version']}" for pin in pins}
    own = f"pkg:pypi/{NAME}@{version}"
    below = _base(base, packages)
    needed_by: dict[str, list[str]] = {own: [], **{reference: [] for reference in references.values()}}
    needed_by[own].append(below[0]["bom-ref"])
    needed_by[below[0]["bom-ref"]] = [each["bom-ref"] for each in below[1:]]
    for pin in pins:
        for parent in _parents(pin["rest"]):
            needed_by[references.get(parent, own)].append(references[pin["name"]])
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, own + lock + base + packages)}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": NAME,
                "version": version,
                "purl": own,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            },
        },
        "components": [*(_component(pin, references[pin["name"]]) for pin in pins), *below],
        "dependencies": [{"ref": ref, "dependsOn": sorted(set(needs))} for ref, needs in sorted(needed_by.items())],
    }


def _base(base: str, packages: str) -> list[dict[str, Any]]:
    """Return the base image, and what is in it."""
    named, _, digest = base.partition("@sha256:")
    name, _, tag = named.partition(":")
    image = f"pkg:oci/{name}@sha256%3A{digest}?tag={tag}"
    hashes = [{"alg": "SHA-256", "content": digest}]
    found = [{"type": "container", "bom-ref": image, "name": name, "version": tag, "purl": image, "hashes": hashes}]
    for line in packages.splitlines():
        package, version, architecture = line.split()
        reference = f"pkg:deb/debian/{package}@{version}?arch={architecture}"
        found.append({"type": "library", "bom-ref": reference, "name": package, "version": version, "purl": reference})
    return found


def _parents(rest: str) -> list[str]:
    """Return who needs a package, as the comment after its hashes says."""
    via = rest.partition("# via")[2].replace("#", " ")
    return [re.split(r"[ (\[]", line.strip())[0] for line in via.splitlines() if line.strip()]


def _component(pin: dict[str, str], reference: str) -> dict[str, Any]:
    hashes = sorted(re.findall(r"--hash=sha256:([0-9a-f]{64})", pin["rest"]))
    return {
        "type": "library",
        "bom-ref": reference,
        "name": pin["name"],
        "version": pin["version"],
        "scope": "excluded" if pin["name"] in NOT_IN_THE_IMAGE else "required",
        "purl": reference,
        # pip installs one of these files; Python version and platform decide which.
        "externalReferences": [
            {
                "type": "distribution",
                "url": f"https://pypi.org/project/{pin['name']}/{pin['version']}/",
                "hashes": [{"alg": "SHA-256", "content": content} for content in hashes],
            }
        ],
    }


if __name__ == "__main__":
    lock_file, version_argument, epoch_argument, base_argument, *packages_file = sys.argv[1:]
    listed = "".join(Path(file).read_text() for file in packages_file)
    document = sbom(Path(lock_file).read_text(), version_argument, int(epoch_argument), base_argument, listed)
    print(json.dumps(document, indent=2))
