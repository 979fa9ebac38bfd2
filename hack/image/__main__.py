"""`python -m hack.image [FILE]`: build the operator's image as an OCI archive, and print its path. Requires root."""

import sys
from pathlib import Path

from hack.control_plane.build.commands import ControlPlaneError
from hack.image.build import build


def main() -> int:
    """Build; return the exit code."""
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "build/tfjob-operator.tar")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        build(target)
    except ControlPlaneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
