"""What a keeper reports about its instance: a small JSON file in the instance's folder.

The keeper writes it by a rename whenever something changed; owners, `status` and `env` read it. Whether the keeper still
lives is not in it, since a killed keeper cannot say so: that is what the lock in the folder is for.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from hack.control_plane.errors import ControlPlaneError
from hack.control_plane.run.processes import died_message

STATE_FILE = "state.json"


@dataclass(frozen=True, slots=True)
class PartState:
    """One part as its keeper saw it last; `exit_code` is None while it runs."""

    name: str
    pid: int
    log: str
    exit_code: int | None = None

    def complaint(self) -> str | None:
        """Return a message about a part that ended, None while it runs."""
        return None if self.exit_code is None else died_message(self.name, self.exit_code, Path(self.log))


@dataclass(frozen=True, slots=True)
class State:
    """An instance that is ready, or was."""

    name: str
    keeper: int
    server: str
    etcd_endpoint: str
    kubectl: str
    parts: tuple[PartState, ...] = ()
    ports: dict[str, int] = field(default_factory=dict)
    """Where the members of etcd and the API servers listen, by their names."""

    def write(self, folder: Path) -> None:
        """Put the state into the folder; a reader sees the old one or the new one."""
        draft = folder / f"{STATE_FILE}.draft"
        draft.write_text(json.dumps(asdict(self), indent=2))
        draft.rename(folder / STATE_FILE)

    @classmethod
    def read(cls, folder: Path) -> State:
        """Return the state of the instance in a folder. Raises ControlPlaneError if it is not ready yet, or gone."""
        try:
            content = json.loads((folder / STATE_FILE).read_text())
        except (OSError, ValueError) as error:
            raise ControlPlaneError(f"the control plane in {folder} is not ready, or gone") from error
        parts = tuple(PartState(**part) for part in content.pop("parts"))
        return cls(**content, parts=parts)

    def complaints(self) -> list[str]:
        """Return a message about every part that ended."""
        return [complaint for part in self.parts if (complaint := part.complaint()) is not None]
