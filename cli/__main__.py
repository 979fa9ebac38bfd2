"""Makes `python -m tfjob_operator.cli` the same as `kubectl tfjob`."""

from __future__ import annotations

import gc
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the plugin. It needs click from the extra `cli`, which the operator's image does not have."""
    gc.disable()  # imports create no garbage, and the collector takes a seventh of their time; `app` enables it again
    try:
        from tfjob_operator.cli.main import main as run
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        sys.exit(
            "error: the Python package click is missing. Reinstall the plugin from its checkout, pipx install --force '.[cli]',"
            " or from its wheel, pipx install --force 'FILE.whl[cli]'"
        )
    run()


if __name__ == "__main__":
    main()
