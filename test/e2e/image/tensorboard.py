"""`tensorboard --logdir=... --host=... --port=...`: responds as TensorBoard does, with losses that `sample.py` wrote."""

import argparse
import json
import os
import signal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PAGE = "<html><head><title>TensorBoard</title></head></html>"


def main() -> None:
    """Serve until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
    parser = argparse.ArgumentParser()
    parser.add_argument("--logdir", type=Path, required=True)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    given = parser.parse_args()

    class Handler(BaseHTTPRequestHandler):
        """The page, and the points of the only tag."""

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/data/plugin/scalars/tags":
                text = json.dumps({".": {"loss": {}}} if points() else {})
            else:
                text = json.dumps(points()) if path == "/data/plugin/scalars/scalars" else PAGE
            self.send_response(200)
            self.end_headers()
            self.wfile.write(text.encode())

    def points() -> list[list[float]]:
        file = given.logdir / "losses"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    ThreadingHTTPServer((given.host, given.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
