"""What goes wrong in a matrix, apart from what its checks find."""


class FetchError(Exception):
    """A client cannot be had: no network, or its package is gone. Nothing is known about the project then."""


class CheckError(Exception):
    """A check found that something is not as it should be; the message says what."""
