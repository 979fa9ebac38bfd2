"""Credential plugins of a kubeconfig (`exec`): a program that logs the user in and prints an ExecCredential."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, Final

from tfjob_operator.cli.errors import CliError

_EXTENSION: Final = "client.authentication.k8s.io/exec"


def run(entry: Mapping[str, Any], cluster: Mapping[str, Any]) -> Mapping[str, str]:
    """Run the plugin of `entry`, which may prompt, and return the `status` that it prints. Raises CliError."""
    version = str(entry.get("apiVersion", ""))
    interactive = sys.stdin.isatty() and entry.get("interactiveMode") != "Never"
    spec: dict[str, Any] = {"interactive": interactive}
    if entry.get("provideClusterInfo"):
        extensions = {each["name"]: each["extension"] for each in cluster.get("extensions") or ()}
        config = {"config": extensions[_EXTENSION]} if _EXTENSION in extensions else {}
        spec["cluster"] = {name: value for name, value in cluster.items() if name != "extensions"} | config
    told = {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
    given = {str(each["name"]): str(each["value"]) for each in entry.get("env") or ()}
    command = [str(entry.get("command", "")), *map(str, entry.get("args") or ())]
    try:
        done = subprocess.run(  # noqa: S603 - whoever wrote the kubeconfig may have it run what he likes
            command,
            stdin=None if interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env={**os.environ, **given, "KUBERNETES_EXEC_INFO": json.dumps(told)},
            check=False,
        )
    except OSError as error:
        hint = entry.get("installHint")
        raise CliError(
            f"cannot run the credential plugin {command[0]}: {error.strerror}{f'. {hint}' if hint else ''}"
        ) from error
    if done.returncode:
        raise CliError(f"credential plugin {command[0]} failed with exit code {done.returncode}")
    try:
        credential = json.loads(done.stdout)
        about = credential["apiVersion"], credential["kind"]
        status: Mapping[str, str] = credential["status"]
    except (ValueError, KeyError, TypeError):
        about, status = ("", ""), {}
    if about != (version, "ExecCredential"):
        raise CliError(f"credential plugin {command[0]} did not print an ExecCredential of {version}")
    return status
