"""`python -m hack.bench_scale [subject ...]`: measure a large cluster, print a table, write build/bench/scale.json."""

from __future__ import annotations

import sys
from typing import Final

from hack.bench.bench import Subject
from hack.bench.run import main
from hack.bench_scale import scale

SUBJECTS: Final[dict[str, Subject]] = {
    "replicas": scale.measure_replicas,
    "shared": scale.measure_shared,
}

if __name__ == "__main__":
    sys.exit(main("python -m hack.bench_scale", "Measures the operator in a large cluster.", "scale.json", SUBJECTS))
