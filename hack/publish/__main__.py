"""`python -m hack.publish --registry=HOST/PATH [--force]`: push the release in build/release/ to an OCI registry.

It pushes the image, the chart, and all other files to three repositories, each with the version as the tag, and writes their
references with digests into build/release/published.txt. It can be repeated: what the registry has is not sent again.

Exit codes: 0 success; 1 the release is incomplete, the registry refused something, or has this version with other content.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from hack.control_plane.build.commands import ControlPlaneError, Progress
from hack.image.build import VERSION
from hack.publish import artifacts
from hack.publish.artifacts import Artifact
from hack.publish.registry import Registry
from hack.release import INSTALLS, OUTPUT, PUBLIC_KEY, REGISTRY, SIGNATURE, SUMS, verify

PUBLISHED: Final = "published.txt"


def release_artifacts(folder: Path, work: Path) -> list[Artifact]:
    """Return the artifacts of a signed release; `work` is an empty folder. Raises ControlPlaneError."""
    image, chart, others = _sorted(verify(folder))
    paths = [folder / name for name in (*others, SUMS, SIGNATURE, PUBLIC_KEY)]
    return [artifacts.image(folder / image, work), artifacts.chart(folder / chart), artifacts.files(paths)]


def _sorted(names: Iterable[str]) -> tuple[str, str, list[str]]:
    """Return the names of the image, of the chart, and of all other files."""
    found = sorted(names)
    images = [
        name for name in found if name.startswith(f"tfjob-operator-image-{VERSION}-") and name.endswith(".tar.gz")
    ]
    charts = [name for name in found if name.endswith(f"-{VERSION}.tgz")]
    if (len(images), len(charts)) != (1, 1):
        raise ControlPlaneError(f"{SUMS} must list one image and one chart of {VERSION}, not {images} and {charts}")
    return images[0], charts[0], [name for name in found if name not in {*images, *charts}]


def publish(registry: Registry, pushed: Iterable[Artifact], *, force: bool) -> list[str]:
    """Push artifacts under the tag of the version; return their references with digests.

    Before anything is pushed: raises ControlPlaneError if a repository has the tag with another digest, unless `force`.
    """
    progress = Progress("publish")
    missing = []
    references = []
    for artifact in pushed:
        references.append(f"{registry.address}/{artifact.repository}:{VERSION}@{artifact.digest}")
        tagged = registry.tagged(artifact.repository, VERSION)
        if tagged == artifact.digest:
            progress.say(f"unchanged: {references[-1]}")
            continue
        if tagged is not None and not force:
            message = f"{registry.address}/{artifact.repository}:{VERSION} exists with other content, {tagged}"
            raise ControlPlaneError(f"{message}: release a new version, or replace it with FORCE=1 (--force)")
        missing.append(artifact)
    for artifact in missing:
        progress.say(f"{artifact.repository}: {len(artifact.blobs)} blobs")
        registry.push(artifact, VERSION)
    return references


def main() -> int:
    """Push the release; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m hack.publish", description="Push a release to an OCI registry.")
    parser.add_argument("--registry", default=REGISTRY, help="HOST[:PORT][/PATH]; by default that of setup.cfg")
    parser.add_argument("--force", action="store_true", help="replace other content of the same version")
    given = parser.parse_args()
    if not given.registry:
        parser.error("where to? --registry=HOST/PATH (`make publish REGISTRY=registry.example.com/team`)")
    try:
        registry = Registry(given.registry)
        with tempfile.TemporaryDirectory(prefix="tfjob-publish-") as work:
            references = publish(registry, release_artifacts(OUTPUT, Path(work)), force=given.force)
    except ControlPlaneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    (OUTPUT / PUBLISHED).write_text("".join(f"{each}\n" for each in references))
    print(*references, sep="\n")
    image = f"{registry.address}/{artifacts.IMAGE}"
    if f"image: {image}:" not in (OUTPUT / INSTALLS["standalone"]).read_text():
        print(f"note: manifests and chart name another image than {image}: see docs/install.md, An image in a registry")
    return 0


if __name__ == "__main__":
    sys.exit(main())
