"""What goes wrong in a demo."""


class DemoError(Exception):
    """Something did not go as it should."""
