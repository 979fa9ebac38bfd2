"""Where the API server is, and how we authenticate: settings from a pod or a kubeconfig, and credentials that stay valid."""

from __future__ import annotations

from tfjob_operator.api.client.auth.settings import load_settings

__all__ = ["load_settings"]
