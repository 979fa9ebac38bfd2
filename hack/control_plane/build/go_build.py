"""Compile commands of Kubernetes from an unpacked source tree, without the tree's own Makefile.

In: the tree below a GOPATH of its own, the names of commands (`kube-apiserver`). Out: programs in a folder. The Makefile
first builds six code generators and runs them over the whole tree, which takes longer than the programs. Debian's source
package already holds all that they make but one file: the OpenAPI definitions that kube-apiserver serves. So one generator
is enough, and the whole build takes about 260 seconds of processor time.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from hack.control_plane.build.commands import LoggedRunner
from hack.control_plane.errors import ControlPlaneError

GO: Final = "/usr/lib/go/bin"
PACKAGE: Final = "k8s.io/kubernetes"
BUILD_LIMIT_S: Final = 3600.0  # two to three minutes on two cores; a slow single core must still get there
SERVES_OPENAPI: Final = "kube-apiserver"
GENERATOR: Final = "openapi-gen"
OPENAPI_PACKAGE: Final = f"{PACKAGE}/pkg/generated/openapi"
OPENAPI_TAG: Final = re.compile(r"\+k8s:openapi-gen=")
NOT_SERVED: Final = frozenset({"code-generator", "sample-apiserver"})  # as in the Makefile
VERSION_PACKAGES: Final = ("client-go/pkg/version", "component-base/version")


class GoTree:
    """The source of Kubernetes, unpacked where Go looks for it; invariant: everything that Go writes is below `work`."""

    def __init__(self, source: Path, work: Path, runner: LoggedRunner, version: str) -> None:
        """Move the unpacked `source` into a new GOPATH below `work`. `version` is what the programs will report."""
        self._runner = runner
        self._work = work
        self._version = version
        self.root = work / "gopath" / "src" / PACKAGE
        self.root.parent.mkdir(parents=True)
        source.rename(self.root)
        (work / "home").mkdir()

    def compile(self, commands: Sequence[str], out: Path) -> None:
        """Compile the commands into the folder `out`."""
        programs = [f"./cmd/{command}" for command in commands]
        if SERVES_OPENAPI in commands:
            # The generator keeps little more than one core busy. Meanwhile we compile what does not need its file.
            others = [each for each in programs if each != f"./cmd/{SERVES_OPENAPI}"]
            with self._building(others, out) if others else contextlib.nullcontext():
                self._generate_openapi()
        self._build(programs, out)

    def _generate_openapi(self) -> None:
        """Make the one generated file that the tree lacks, as the Makefile does, and check the API violations it reports."""
        tools = self._work / "tools"
        tools.mkdir()
        self._build([f"./vendor/k8s.io/kube-openapi/cmd/{GENERATOR}"], tools)
        report = self._work / "violations"
        self._runner.run(
            str(tools / GENERATOR),
            "--logtostderr",
            f"--input-dirs={','.join(sorted(set(self._packages_with_openapi())))}",
            f"--output-package={OPENAPI_PACKAGE}",
            "--output-file-base=zz_generated.openapi",
            "--go-header-file=vendor/k8s.io/code-generator/hack/boilerplate.go.txt",
            f"--report-filename={report}",
            limit_s=BUILD_LIMIT_S,
            cwd=self.root,
            env=self._environment(),
        )
        known = self.root / "api" / "api-rules" / "violation_exceptions.list"
        if report.read_text() != known.read_text():
            raise ControlPlaneError(
                f"{GENERATOR} reports other violations of API rules than the tree's own {known.name}"
            )

    def _packages_with_openapi(self) -> Iterator[str]:
        """Yield the packages whose types are tagged for OpenAPI. Packages in `staging` are imported by their vendored path."""
        staging = self.root / "staging" / "src" / "k8s.io"
        repositories = [folder for folder in staging.iterdir() if folder.is_dir() and folder.name not in NOT_SERVED]
        for folder in (self.root / "cmd", self.root / "pkg", *repositories):
            for file in folder.rglob("*.go"):
                if OPENAPI_TAG.search(file.read_text()):
                    path = str(file.parent.relative_to(self.root))
                    yield f"{PACKAGE}/{path.replace('staging/src/', 'vendor/', 1)}"

    def _build(self, packages: Sequence[str], out: Path) -> None:
        with self._building(packages, out):
            pass

    def _building(self, packages: Sequence[str], out: Path) -> AbstractContextManager[None]:
        """Compile while a block runs, and wait for it at its end."""
        # Without debug information the same code is compiled in two thirds of the time; the packages of Go itself keep
        # theirs, since Debian ships those compiled. The code of cloud providers is not needed; upstream's tag leaves it out.
        return self._runner.beside(
            f"{GO}/go",
            "build",
            "-tags=providerless",
            f"-gcflags={PACKAGE}/...=-dwarf=false",
            f"-gcflags={PACKAGE}/vendor/...=-dwarf=false",
            f"-ldflags=-s -w {self._version_flags()}",
            "-o",
            f"{out}/",
            *packages,
            limit_s=BUILD_LIMIT_S,
            cwd=self.root,
            env=self._environment(),
        )

    def _version_flags(self) -> str:
        """Return the linker's flags without which the programs would call themselves v0.0.0."""
        major, minor, _ = self._version.split(".")
        said = {"gitVersion": f"v{self._version}", "gitMajor": major, "gitMinor": minor, "gitCommit": "debian"}
        said["gitTreeState"] = "clean"
        return " ".join(
            f"-X {PACKAGE}/vendor/k8s.io/{package}.{name}={value}"
            for package in VERSION_PACKAGES
            for name, value in said.items()
        )

    def _environment(self) -> dict[str, str]:
        home = self._work / "home"
        return {
            "PATH": f"{GO}:{os.defpath}",
            "HOME": str(home),
            "GOCACHE": str(home / "go-build"),
            "GOPATH": str(self._work / "gopath"),
            "GO111MODULE": "off",
            "GOFLAGS": "",
            "CGO_ENABLED": "0",
            "GOGC": "off",  # a compiler lives for seconds and stays below 1 GB without it, and a quarter of the time is saved
            "TMPDIR": str(home),
            "LC_ALL": "C",
        }
