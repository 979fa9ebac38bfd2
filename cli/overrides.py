"""What the global options give: it goes before what stands in the kubeconfig. Pure."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Overrides:
    """A field for each global option, None or empty where it was not given."""

    namespace: str | None = None
    context: str | None = None
    kubeconfig: str | None = None
    cluster: str | None = None
    user: str | None = None
    server: str | None = None
    token: str | None = None
    as_: str | None = None
    as_group: tuple[str, ...] = ()
    as_uid: str | None = None
    certificate_authority: str | None = None
    insecure_skip_tls_verify: bool = False
    request_timeout: float | None = None

    def flags(self) -> list[str]:
        """Return the options for kubectl."""
        given = {f"--{each.name.rstrip('_').replace('_', '-')}": getattr(self, each.name) for each in fields(self)}
        given["--request-timeout"] = None if self.request_timeout is None else f"{self.request_timeout:g}s"
        return [
            f"{flag}={str(value).lower() if value is True else value}"
            for flag, values in given.items()
            for value in (values if isinstance(values, tuple) else (values,) if values else ())
        ]
