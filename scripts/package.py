#!/usr/bin/env python3
"""Packs a binary of dacapo: a tarball, a Python wheel and an npm package that carry it, an SBOM, and checksums.

scripts/release calls it. The same binary and commit give the same bytes: names are sorted, times are those of the commit.
"""

import argparse
import base64
import gzip
import hashlib
import io
import json
import os
import platform
import re
import subprocess
import tarfile
import time
import tomllib
import uuid
import zipfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUMMARY = "Code mode for any model and any client: a stateless gateway that runs programs of models"
DOCUMENTS = ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"]


@dataclass(frozen=True)
class Machine:
    """What a binary is for."""

    name: str
    """As Rust, Python and the kernel call it."""
    npm: str
    """As npm calls it."""
    needs: str = ""
    """Besides its glibc."""

    @property
    def npm_name(self) -> str:
        """npm has one file for a name and version."""
        return "dacapo" if self.npm == "x64" else f"dacapo-linux-{self.npm}"

    @staticmethod
    def of(binary: bytes) -> "Machine":
        known = {62: Machine("x86_64", "x64", ", and a processor with x86-64-v2 (2009)"), 183: Machine("aarch64", "arm64")}
        kind = int.from_bytes(binary[18:20], "little")
        if binary[:4] != b"\x7fELF" or kind not in known:
            raise SystemExit("package: the binary is not for Linux on x86-64 or arm64")
        return known[kind]

    def run(self, binary: Path, *arguments: str) -> str:
        """Runs the binary here, whatever it is for."""
        emulator = []
        if platform.machine() != self.name:
            emulator = [f"qemu-{self.name}", "-L", f"/usr/{self.name}-linux-gnu"]
        return output(*emulator, str(binary), *arguments)


def output(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def tar_gz(path: Path, files: dict[str, tuple[bytes, int]], epoch: int, level: int) -> None:
    """Writes files, by name: their bytes and modes."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, (data, mode) in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(data), mode, epoch
            tar.addfile(entry, io.BytesIO(data))
    path.write_bytes(gzip.compress(packed.getvalue(), level, mtime=0))


def wheel(out: Path, version: str, binary: bytes, platform: str, epoch: int, level: int) -> None:
    info = f"dacapo-{version}.dist-info"
    tag = f"py3-none-{platform}"
    metadata = (
        f"Metadata-Version: 2.4\nName: dacapo\nVersion: {version}\nSummary: {SUMMARY}\n"
        "License-Expression: MIT OR Apache-2.0\nRequires-Python: >=3.8\n"
        "Description-Content-Type: text/markdown\n\n" + (ROOT / "README.md").read_text()
    )
    described = f"Wheel-Version: 1.0\nGenerator: dacapo scripts/package.py\nRoot-Is-Purelib: false\nTag: {tag}\n"
    files = {
        f"dacapo-{version}.data/scripts/dacapo": (binary, 0o755),
        f"{info}/METADATA": (metadata.encode(), 0o644),
        f"{info}/WHEEL": (described.encode(), 0o644),
    }
    record = ""
    for name, (data, _) in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(data)}\n"
    files[f"{info}/RECORD"] = (f"{record}{info}/RECORD,,\n".encode(), 0o644)
    # Zip files know no time before 1980.
    date = time.gmtime(max(epoch, 315532800))[:6]
    with zipfile.ZipFile(out / f"dacapo-{version}-{tag}.whl", "w", zipfile.ZIP_DEFLATED, compresslevel=level) as packed:
        for name, (data, mode) in sorted(files.items()):
            entry = zipfile.ZipInfo(name, date)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100000 | mode) << 16
            packed.writestr(entry, data, zipfile.ZIP_DEFLATED, level)


def npm(out: Path, version: str, binary: bytes, machine: Machine, epoch: int, level: int) -> None:
    described = {
        "name": machine.npm_name,
        "version": version,
        "description": SUMMARY,
        "license": "MIT OR Apache-2.0",
        "bin": {"dacapo": "bin/dacapo"},
        "files": ["bin"],
        "os": ["linux"],
        "cpu": [machine.npm],
        "libc": ["glibc"],
    }
    files = {
        "package/package.json": ((json.dumps(described, indent=2) + "\n").encode(), 0o644),
        "package/bin/dacapo": (binary, 0o755),
    }
    files |= {f"package/{name}": ((ROOT / name).read_bytes(), 0o644) for name in DOCUMENTS}
    tar_gz(out / f"{machine.npm_name}-{version}.tgz", files, epoch, level)


def glibc(binary: Path) -> tuple[int, int]:
    """The oldest glibc that has every symbol which the binary needs."""
    needed = re.findall(r"GLIBC_(\d+)\.(\d+)", output("readelf", "--version-info", "--wide", str(binary)))
    return max((int(major), int(minor)) for major, minor in needed)


def compiled_in(target: str) -> list[dict]:
    """The packages that the command is made of: not those for tests, benchmarks or other machines."""
    metadata = json.loads(
        output("cargo", "metadata", "--format-version", "1", "--locked", "--offline", "--filter-platform", target)
    )
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    first = next(id for id, package in packages.items() if package["name"] == "dacapo")
    found, ahead = set(), [first]
    while ahead:
        id = ahead.pop()
        if id in found:
            continue
        found.add(id)
        for dependency in nodes[id]["deps"]:
            if any(kind["kind"] != "dev" for kind in dependency["dep_kinds"]):
                ahead.append(dependency["pkg"])
    return sorted((packages[id] for id in found), key=lambda package: (package["name"], package["version"]))


def sbom(out: Path, version: str, machine: Machine, digest: str, epoch: int) -> None:
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    checksums = {(package["name"], package["version"]): package.get("checksum") for package in lock}
    # The guest is compiled from the QuickJS sources in this crate, which is no dependency that cargo builds.
    guest = next(package for package in lock if package["name"] == "rquickjs-sys")
    components = []
    for package in [*compiled_in(f"{machine.name}-unknown-linux-gnu"), {"license": "MIT", **guest}]:
        name, its_version = package["name"], package["version"]
        component = {
            "type": "library",
            "bom-ref": f"pkg:cargo/{name}@{its_version}",
            "name": name,
            "version": its_version,
            "purl": f"pkg:cargo/{name}@{its_version}",
        }
        if package.get("license"):
            component["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
        if checksums.get((name, its_version)):
            component["hashes"] = [{"alg": "SHA-256", "content": checksums[name, its_version]}]
        components.append(component)
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, digest)}",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch)),
            "component": {
                "type": "application",
                "name": "dacapo",
                "version": version,
                "hashes": [{"alg": "SHA-256", "content": digest}],
            },
        },
        "components": components,
    }
    (out / f"dacapo-{version}-{machine.name}.cdx.json").write_text(json.dumps(document, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", type=Path, required=True, help="a dacapo that was built for Linux")
    parser.add_argument("--out", type=Path, required=True, help="a folder; what is in it is replaced")
    parser.add_argument("--compression", type=int, default=9, choices=range(1, 10), help="1 is fast, 9 is small")
    args = parser.parse_args()
    out, binary = args.out.resolve(), args.binary.resolve()
    out.mkdir(parents=True, exist_ok=True)
    for old in out.iterdir():
        old.unlink()
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or output("git", "log", "-1", "--format=%ct"))
    major, minor = glibc(binary)
    data = binary.read_bytes()
    machine = Machine.of(data)
    name = f"dacapo-{version}-{machine.name}-linux"
    files = {f"{name}/bin/dacapo": (data, 0o755)}
    files |= {f"{name}/{document}": ((ROOT / document).read_bytes(), 0o644) for document in DOCUMENTS}
    shells = {"bash": "dacapo", "zsh": "_dacapo", "fish": "dacapo.fish"}
    for shell, file in shells.items():
        files[f"{name}/completions/{shell}/{file}"] = (machine.run(binary, "completions", shell).encode(), 0o644)
    man = out / "man"
    machine.run(binary, "man", str(man))
    for page in sorted(man.iterdir()):
        files[f"{name}/man/man1/{page.name}"] = (page.read_bytes(), 0o644)
        page.unlink()
    man.rmdir()
    tar_gz(out / f"{name}.tar.gz", files, epoch, args.compression)
    wheel(out, version, data, f"manylinux_{major}_{minor}_{machine.name}", epoch, args.compression)
    npm(out, version, data, machine, epoch, args.compression)
    sbom(out, version, machine, hashlib.sha256(data).hexdigest(), epoch)
    made = sorted(path for path in out.iterdir())
    sums = "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in made)
    (out / "SHA256SUMS").write_text(sums)
    print(f"release: {out}: needs glibc {major}.{minor} or newer{machine.needs}")
    print(sums, end="")


main()
