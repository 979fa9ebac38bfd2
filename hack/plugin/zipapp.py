"""The plugin as one file that Python runs, for those who want to copy it into their PATH; shiv makes it.

Compiled modules cannot be imported from a zip, so it unpacks itself at its first start: into ~/.shiv, or where SHIV_ROOT says.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from hack.plugin.archive import CHECK, LIB, PROGRAMS

ENTRY: Final = f"tfjob_operator.cli.{PROGRAMS['kubectl-tfjob']}:main"


def pack_file(files: Mapping[str, tuple[bytes, int]], target: Path) -> None:
    """Write the contents of an archive as one program. The same files make the same bytes. Raises CalledProcessError."""
    with TemporaryDirectory(prefix="tfjob-plugin-") as folder:
        modules, preamble = Path(folder, LIB), Path(folder, "preamble.py")
        for name, (data, _) in files.items():
            if name.startswith(f"{LIB}/"):
                file = Path(folder, name)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(data)
        preamble.write_text(CHECK)
        shiv = [sys.executable, "-m", "shiv", f"--site-packages={modules}", f"--preamble={preamble}"]
        shiv += [f"--entry-point={ENTRY}", "--python=/usr/bin/env python3", "--compressed", "--reproducible"]
        environ = os.environ | {"SOURCE_DATE_EPOCH": "315532800"}  # the first time that a zip can have
        subprocess.run([*shiv, f"--output-file={target}"], check=True, env=environ, stdout=subprocess.DEVNULL)
