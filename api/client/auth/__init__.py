"""Where the server is and how we prove who we are: settings from a pod or a kubeconfig, credentials that stay true."""

from __future__ import annotations

from tfjob_operator.api.client.auth.settings import load_settings

__all__ = ["load_settings"]
