"""Tests of users' clients, which `python -m hack.matrix` downloads. `pytest test` does not run them."""

from pathlib import Path

import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore these tests unless an argument names one of their files."""
    named = any(Path(argument.partition("::")[0]).name == collection_path.name for argument in config.args)
    return None if named or collection_path.is_dir() else True
