"""`python -m hack.bench_page`: measure the page of `kubectl tfjob dashboard`, print a table, write build/bench/page.json."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from hack.bench.run import main
from hack.bench_page import viewers

if TYPE_CHECKING:
    from hack.bench.run import Subject

SUBJECTS: Final[dict[str, Subject]] = {"viewers": viewers.measure}

if __name__ == "__main__":
    sys.exit(main("python -m hack.bench_page", "Measures the live page.", "page.json", SUBJECTS))
