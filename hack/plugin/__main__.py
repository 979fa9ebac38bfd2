"""`python -m hack.plugin`: pack the plugin for each platform into build/plugin/, and write krew's manifest where they will lie.

The compiled modules are fetched from the package index. Exit codes: 0, 1 when something could not be fetched or built.
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from hack.plugin.archive import PLATFORMS, ROOT, build_wheel, contents, download, manifest, pack, pack_file
from tfjob_operator.cli.yaml_text import yaml_text

OUTPUT: Final = ROOT / "build" / "plugin"


def main() -> int:
    """Pack the plugin; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m hack.plugin", description="Packs kubectl tfjob for each platform.")
    parser.add_argument("--url", help="where the archives will lie; with it krew's manifest is written")
    given = parser.parse_args()
    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir(parents=True)
    digests = []
    try:
        with tempfile.TemporaryDirectory(prefix="tfjob-plugin-") as scratch:
            wheel = build_wheel(Path(scratch))
            for platform in PLATFORMS:
                wheels = download(platform, Path(scratch) / f"{platform.os}-{platform.arch}")
                files = contents([*wheels, wheel])
                packed = pack(files)
                (OUTPUT / platform.archive).write_bytes(packed)
                pack_file(files, OUTPUT / platform.zipapp)
                digests.append((platform, hashlib.sha256(packed).hexdigest()))
                for name in (platform.archive, platform.zipapp):
                    print(f"{OUTPUT / name}  {(OUTPUT / name).stat().st_size / 1e6:.1f} MB")
    except subprocess.CalledProcessError as error:
        print(f"the plugin could not be packed: {error}", file=sys.stderr)
        return 1
    if given.url:
        version = wheel.name.split("-")[1]
        text = yaml_text(manifest(version, given.url, digests), sort_keys=False)
        (OUTPUT / "tfjob.yaml").write_text(text)
        print(OUTPUT / "tfjob.yaml")
    return 0


if __name__ == "__main__":
    sys.exit(main())
