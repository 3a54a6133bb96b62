"""The packages in svcd.pyz and in the Debian package, as a CycloneDX document: names, versions, licenses.

It has neither time nor serial number, so that the same packages give the same bytes.
"""
from __future__ import annotations

import json
from importlib.metadata import Distribution
from typing import Any

from distribution.bundle import packages
from svcd import __version__

NAME = f"svcd-{__version__}.cdx.json"


def build() -> bytes:
    """Return the content of the document."""
    components = [_component(package) for package in sorted(packages(), key=lambda package: package.name.lower())]
    root = {"type": "application", "bom-ref": f"pkg:pypi/svcd@{__version__}", "name": "svcd", "version": __version__,
            "purl": f"pkg:pypi/svcd@{__version__}", "licenses": [{"license": {"id": "MIT"}}]}
    document = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "metadata": {"component": root},
                "components": components}
    return json.dumps(document, indent=1).encode() + b"\n"


def _component(package: Distribution) -> dict[str, Any]:
    purl = f"pkg:pypi/{package.name.lower().replace('_', '-')}@{package.version}"
    facts = package.metadata.json
    expression = facts.get("license_expression")
    classified = [line.rpartition(" :: ")[2] for line in facts.get("classifier", []) if line.startswith("License :: ")]
    named = str(facts.get("license") or ", ".join(classified))
    licenses: list[dict[str, Any]] = [{"expression": expression}] if expression else (
        [{"license": {"name": named.splitlines()[0]}}] if named else [])
    return {"type": "library", "bom-ref": purl, "name": package.name, "version": package.version, "purl": purl,
            "licenses": licenses}
