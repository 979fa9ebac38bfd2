"""A local port that forwards to another one once it is opened: it simulates an API server that has not started yet."""

import contextlib
import socket
import threading
from typing import Self


class Forwarder:
    """Reserves a port of loopback; refuses connections to it until `open`, then passes bytes both ways.

    A context manager; leaving it cuts all connections and ends all threads.
    """

    def __init__(self, port: int) -> None:
        """Forward to `port` of loopback."""
        self._target = port
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))  # bound and not listening: the port is ours and refuses
        self.port: int = self._listener.getsockname()[1]
        self._sockets = [self._listener]
        self._threads: list[threading.Thread] = []

    def open(self) -> None:
        """Pass connections on from now on."""
        self._listener.listen()
        self._start(self._accept)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for end in self._sockets:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for end in self._sockets:
            end.close()

    def _start(self, target: object, *arguments: socket.socket) -> None:
        assert callable(target)
        thread = threading.Thread(target=target, args=arguments)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
                self._sockets += [near, far]
                self._start(self._pump, near, far)
                self._start(self._pump, far, near)

    @staticmethod
    def _pump(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)
