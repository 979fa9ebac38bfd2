"""Folders of instances: which instance is alive, and which folder was left behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hack.control_plane import ControlPlaneError
from hack.control_plane.run import folders


def test_a_held_folder_is_alive_and_private(tmp_path: Path) -> None:
    """The lock shows that it is alive; the mode keeps other users from the authority's key."""
    held = folders.make_private("one", tmp_path)
    assert folders.is_alive(held.path)
    assert held.path.stat().st_mode & 0o077 == 0
    held.remove()
    assert not held.path.exists()


def test_sweeping_deletes_the_folders_whose_keeper_is_gone_and_no_other(tmp_path: Path) -> None:
    """Closing the descriptor releases the lock, as the end of a killed keeper does."""
    alive, dead = folders.make_private("alive", tmp_path), folders.make_private("dead", tmp_path)
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    os.close(dead.lock)
    assert folders.sweep([tmp_path]) == [dead.path]
    assert sorted(tmp_path.iterdir()) == sorted([alive.path, stranger])
    alive.remove()


def test_a_folder_that_is_just_being_made_is_left_alone_and_an_old_one_of_that_kind_is_not(tmp_path: Path) -> None:
    """A folder is created a moment before its lock is taken, and a keeper may be killed in between."""
    held = folders.make_private("half", tmp_path)
    (held.path / folders.LOCK_FILE).unlink()
    assert folders.sweep([tmp_path]) == []
    os.utime(held.path, (1, 1))
    assert folders.sweep([tmp_path]) == [held.path]
    os.close(held.lock)


def test_there_is_one_living_instance_of_a_name(tmp_path: Path) -> None:
    """Two `up` at once must not share a folder."""
    held = folders.make_named("blue", tmp_path)
    assert folders.find_named("blue", [tmp_path]) == held.path
    assert folders.find_named("red", [tmp_path]) is None
    with pytest.raises(ControlPlaneError, match="already up"):
        folders.make_named("blue", tmp_path)
    held.remove()
    assert folders.find_named("blue", [tmp_path]) is None


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a/b", "..", "a.b", "a" * 33])
def test_a_name_that_would_make_a_strange_path_is_refused(name: str) -> None:
    """It becomes part of a path that is deleted later."""
    with pytest.raises(ControlPlaneError, match="a name has"):
        folders.checked_name(name)
