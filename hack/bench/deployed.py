"""`python -m hack.bench.deployed FOLDER [flag ...]`: the operator as in its pod, the account's files from a folder.

Only root could put them where a pod finds them. What else makes the process small are the variables of the image
(`hack.image.build.SETTINGS`); a kubeconfig would add the package that reads it.
"""

import sys
from pathlib import Path

from tfjob_operator.api import access
from tfjob_operator.controller.__main__ import main

if __name__ == "__main__":
    access.SERVICE_ACCOUNT = Path(sys.argv.pop(1))  # type: ignore[misc]
    sys.exit(main())
