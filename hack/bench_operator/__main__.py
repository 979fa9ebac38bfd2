"""`python -m hack.bench_operator [subject ...]`: measure the whole operator, print a table, write build/bench/operator.json."""

from __future__ import annotations

import sys
from typing import Final

from hack.bench.bench import Subject
from hack.bench.run import main
from hack.bench_operator import idle, large, life, storm, workers

SUBJECTS: Final[dict[str, Subject]] = {
    "storm": storm.measure,
    "life": life.measure,
    "idle": idle.measure,
    "large": large.measure,
    "workers": workers.measure,
}

if __name__ == "__main__":
    sys.exit(main("python -m hack.bench_operator", "Measures the whole operator.", "operator.json", SUBJECTS))
