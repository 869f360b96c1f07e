"""Validates deploy/: Kubernetes manifests against the schemas of a release, also those that kubectl renders from the base
and from the example, and that files name files that are there.

validate.py DEPLOY KUBECTL
"""

import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import yaml

RELEASE = "1.33"
deploy, kubectl = map(Path, sys.argv[1:])
problems = []
kinds = []


def validate(place: str, document: dict) -> None:
    kind = document["kind"]
    try:
        kubernetes_validate.validate(document, RELEASE, strict=True)
        kinds.append(kind)
    except kubernetes_validate.ValidationError as error:
        problems.append(f"{place}: {kind}: {error.path}: {error.message}")


def named_files(kustomization: dict) -> set[str]:
    generated = [file for generator in kustomization.get("configMapGenerator", []) for file in generator["files"]]
    patches = [patch["path"] for patch in kustomization.get("patches", [])]
    return {*kustomization["resources"], *generated, *patches}


for folder in [deploy / "kubernetes/base", deploy / "kubernetes/example"]:
    # It is no object of the API, so there is no schema of it.
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    named = named_files(kustomization)
    problems += [f"{folder}: {name} is not there" for name in sorted(named) if not (folder / name).exists()]
    for path in sorted(folder.iterdir()):
        if path.name not in named | {"kustomization.yaml", "secret.yaml"}:
            problems.append(f"{path} is not part of the kustomization")
    patches = {patch["path"] for patch in kustomization.get("patches", [])}
    for path in sorted(folder.glob("*.yaml")):
        # A patch is a part of an object.
        if path.name not in patches | {"kustomization.yaml"}:
            for document in yaml.safe_load_all(path.read_text()):
                validate(str(path), document)


def rendered(folder: Path) -> list[dict]:
    made = subprocess.run([kubectl, "kustomize", str(folder)], capture_output=True, text=True)
    if made.returncode != 0:
        problems.append(f"{folder}: {made.stderr}")
    return list(yaml.safe_load_all(made.stdout))


base, example = rendered(deploy / "kubernetes/base"), rendered(deploy / "kubernetes/example")
for document in base + example:
    validate("kubectl kustomize", document)
found = {(document["kind"], document["metadata"]["name"].split("-")[0]): document for document in example}
try:
    deployment, config = found["Deployment", "dacapo"], found["ConfigMap", "dacapo"]
    pod = deployment["spec"]["template"]["spec"]
    expected = {
        "the image": (pod["containers"][0]["image"], "registry.example.com/dacapo:0.1.0"),
        "the volume": (pod["volumes"][0]["configMap"]["name"], config["metadata"]["name"]),
        "the configuration": (config["data"]["dacapo.toml"], (deploy / "kubernetes/example/dacapo.toml").read_text()),
        "the size": (pod["containers"][0]["resources"]["limits"]["memory"], "4Gi"),
        "what the base has": (pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"], True),
        "replicas": (found["HorizontalPodAutoscaler", "dacapo"]["spec"]["minReplicas"], 5),
        "the namespaces": ({document["metadata"].get("namespace", "dacapo") for document in example}, {"dacapo"}),
    }
    problems += [f"example: {what} is {is_}, not {should}" for what, (is_, should) in expected.items() if is_ != should]
except KeyError as missing:
    problems.append(f"example: what kubectl renders has no {missing}")

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

print("\n".join(problems) or f"valid: {', '.join(sorted(kinds))}; rendered: {len(base)} and {len(example)} objects")
sys.exit(bool(problems))
