"""Validates deploy/: Kubernetes manifests against the schemas of a release, and that files name files that are there."""

import sys
from pathlib import Path

import kubernetes_validate
import yaml

RELEASE = "1.33"
deploy = Path(sys.argv[1])
problems = []
kinds = []

for path in sorted((deploy / "kubernetes").glob("*.yaml")):
    for document in yaml.safe_load_all(path.read_text()):
        kind = document["kind"]
        if kind == "Kustomization":
            # It is no object of the API, so there is no schema of it.
            for name in document["resources"]:
                if not (path.parent / name).exists():
                    problems.append(f"{path}: {name} is not there")
            continue
        try:
            kubernetes_validate.validate(document, RELEASE, strict=True)
            kinds.append(kind)
        except kubernetes_validate.ValidationError as error:
            problems.append(f"{path}: {kind}: {error.path}: {error.message}")

compose = yaml.safe_load((deploy / "compose/compose.yaml").read_text())
for name, service in compose["services"].items():
    if not {"image", "build"} & set(service):
        problems.append(f"compose.yaml: {name} has no image")
    for other in service.get("depends_on", []):
        if other not in compose["services"]:
            problems.append(f"compose.yaml: {name} depends on {other}, which is not there")
    for volume in service.get("volumes", []):
        source = volume.split(":")[0]
        if source.startswith(".") and not (deploy / "compose" / source).exists():
            problems.append(f"compose.yaml: {name} mounts {source}, which is not there")

print("\n".join(problems) or f"valid: {', '.join(sorted(kinds))}")
sys.exit(bool(problems))
