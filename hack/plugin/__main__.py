"""`python -m hack.plugin`: pack the plugin for each platform into build/plugin/.

With the URL of the archives in `--url`, it also writes the krew manifest. Compiled modules are downloaded from the package
index. Exit codes: 0 success, 1 a download or the build failed.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from hack.image.build import VERSION
from hack.plugin.archive import MANIFEST, ROOT, build_wheel, manifest, pack_all
from tfjob_operator.cli.yaml_text import yaml_text

OUTPUT: Final = ROOT / "build" / "plugin"


def main() -> int:
    """Pack the plugin; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m hack.plugin", description="Pack kubectl tfjob for each platform.")
    parser.add_argument("--url", help="URL of the published archives; also writes the krew manifest")
    given = parser.parse_args()
    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir(parents=True)
    try:
        with tempfile.TemporaryDirectory(prefix="tfjob-plugin-") as scratch:
            made = pack_all(build_wheel(Path(scratch)), OUTPUT)
    except subprocess.CalledProcessError as error:
        print(f"cannot pack the plugin: {error}", file=sys.stderr)
        return 1
    if given.url:
        (OUTPUT / MANIFEST).write_text(yaml_text(manifest(VERSION, given.url, made), sort_keys=False))
    for file in sorted(OUTPUT.iterdir()):
        print(f"{file}  {file.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
