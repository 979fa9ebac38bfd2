"""`python -m hack.matrix kubectl|sdk [--only CLIENT]...`: run a matrix of clients.

Exit codes: 0 all is as it should be or a known difference, 1 something is not, 2 a client cannot be had (no network, a package
that is gone) or the arguments are wrong, 130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from hack.control_plane import ControlPlaneError
from hack.matrix import jobs, sdks
from hack.matrix.releases import RELEASES, FetchError
from hack.matrix.report import KNOWN_OF_KUBECTL, KNOWN_OF_SDKS, Report
from hack.matrix.sdks import SDKS


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m hack.matrix", description="Try clients of every age on a real API server with the operator."
    )
    parser.add_argument("matrix", choices=("kubectl", "sdk"))
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="CLIENT",
        choices=[client.client for client in (*RELEASES, *SDKS)],
        help="run this client alone; may be said again (one of: %(choices)s)",
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a matrix; return the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    is_kubectl = options.matrix == "kubectl"
    report = Report(KNOWN_OF_KUBECTL if is_kubectl else KNOWN_OF_SDKS)

    def is_chosen(client: str) -> bool:
        return not options.only or client in options.only

    kubectls = [release for release in RELEASES if is_chosen(release.client)]
    chosen_sdks = [sdk for sdk in SDKS if is_chosen(sdk.client)]
    if not (kubectls if is_kubectl else chosen_sdks):
        parser.error(f"none of {', '.join(options.only)} belongs to the matrix {options.matrix}")
    try:
        if is_kubectl:
            jobs.run(kubectls, report)
        else:
            sdks.run(chosen_sdks, report)
    except FetchError as error:
        print(f"error: {error}\nNothing is known about the project by that: no check has run.", file=sys.stderr)
        return 2
    except ControlPlaneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; everything that ran has been stopped", file=sys.stderr)
        return 130
    return report.close()


if __name__ == "__main__":
    sys.exit(main())
