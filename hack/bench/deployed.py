"""`python -m hack.bench.deployed FOLDER [flag ...]`: run the operator as in its pod, with account files in FOLDER.

Only root could write to the path at which a pod has these files. The variables of the image also make the process small
(`hack.image.build.SETTINGS`); a kubeconfig would add the package that reads it.
"""

import sys
from pathlib import Path

from tfjob_operator.api import access
from tfjob_operator.controller.__main__ import main

if __name__ == "__main__":
    access.SERVICE_ACCOUNT = Path(sys.argv.pop(1))  # type: ignore[misc]
    sys.exit(main())
