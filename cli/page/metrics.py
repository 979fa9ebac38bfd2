"""What the page counts, in the text format of Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


def exposition(reviews: Mapping[tuple[str, str], int], streams: int, jobs: int) -> str:
    """Return the metrics: reviews by kind (`TokenReview`) and answer (`yes`, `no`, `failed`), open streams, jobs in caches."""
    lines = [
        "# HELP tfjob_page_reviews_total Reviews that the API server was asked for, by kind and answer.",
        "# TYPE tfjob_page_reviews_total counter",
        *(
            f'tfjob_page_reviews_total{{kind="{kind}",answer="{answer}"}} {count}'
            for (kind, answer), count in sorted(reviews.items())
        ),
        "# HELP tfjob_page_streams Browsers' tabs that are told of changes.",
        "# TYPE tfjob_page_streams gauge",
        f"tfjob_page_streams {streams}",
        "# HELP tfjob_page_jobs Jobs in the cache.",
        "# TYPE tfjob_page_jobs gauge",
        f"tfjob_page_jobs {jobs}",
    ]
    return "\n".join(lines) + "\n"
