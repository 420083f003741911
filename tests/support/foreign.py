"""CustomResourceDefinitions of other projects, of whose kinds the chart makes objects."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

FILES = {
    "github.com/cert-manager/cert-manager@v1.17.2": (
        "deploy/crds/crd-certificates.yaml",
        "deploy/crds/crd-issuers.yaml",
    ),
    "github.com/prometheus-operator/prometheus-operator@v0.82.2": (
        "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml",
    ),
}


def foreign_definitions() -> Iterator[dict[str, Any]]:
    """Their schemas under their names; Go gets them as it gets modules, and keeps them."""
    for module, paths in FILES.items():
        done = subprocess.run(["go", "mod", "download", "-json", module], check=True, capture_output=True, text=True)
        folder = Path(json.loads(done.stdout)["Dir"])
        for path in paths:
            found = yaml.safe_load((folder / path).read_text())
            names = {"name": found["metadata"]["name"]}  # its labels are for Helm to fill in
            yield {"apiVersion": found["apiVersion"], "kind": found["kind"], "metadata": names, "spec": found["spec"]}
