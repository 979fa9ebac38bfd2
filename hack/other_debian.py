"""`make other-debian`: run `make demo` and `make test` on the other supported release of Debian, from nothing. Requires root.

    python -m hack.other_debian [COMMAND...]

debootstrap installs that release with git and make in build/debian-RELEASE, whose root has a clone of this commit in /src. The
command runs there in its own mount and process namespaces, so nothing of it outlives this program but the folder. Exit codes:
that of the first command that fails, 1 if the release cannot be installed.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from hack import debian, packages
from hack.control_plane.build.apt import debian_sources, sources_of
from hack.control_plane.build.commands import ControlPlaneError, LoggedRunner, Progress, output_of

PROJECT: Final = Path(__file__).resolve().parents[1]
COMMANDS: Final = ("make demo", "make test")
INSTALL_LIMIT_S: Final = 1800.0  # two minutes with a fast mirror
CERTIFICATES: Final = "etc/pip-certificates.pem"
PIP_SETTING: Final = re.compile(r"^[a-z:]+\.(cert|index-url|trusted-host|proxy)='(.*)'$", re.MULTILINE)
PROXIES: Final = ("http_proxy", "https_proxy", "no_proxy")
CERTIFICATE_VARIABLES: Final = ("NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")
"""Of npm, pip-audit and OpenSSL."""
# The new root is that of the mount namespace, and not only of a process, because chrooted processes cannot create user
# namespaces. The shell remains the first process, which reaps orphans.
ENTER: Final = """
mount --bind "$0" "$0"
cd "$0"
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
mkdir before
pivot_root . before
umount --lazy before
rmdir before
cd /src
sh -c "$1" || exit "$?"
"""


def other_release(os_release: str) -> str:
    """Return the supported release that the machine with this /etc/os-release does not have."""
    return next(name for name in debian.MACHINES if f"VERSION_CODENAME={name}" not in os_release.splitlines())


def environment(pip_settings: str, own: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of commands in the new root: that of a login, and how this machine reaches the network.

    `pip_settings` is the output of `pip config list`.
    """
    settings = dict(PIP_SETTING.findall(pip_settings))
    certificates = {}
    if "cert" in settings:
        settings["cert"] = f"/{CERTIFICATES}"
        certificates = dict.fromkeys(CERTIFICATE_VARIABLES, settings["cert"])
    return {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "LANG": "C.UTF-8",
        **{name: own[name] for name in (*PROXIES, *map(str.upper, PROXIES)) if name in own},
        **certificates,
        **{f"PIP_{name.upper().replace('-', '_')}": value for name, value in settings.items()},
    }


def install(release: str, root: Path, progress: Progress) -> None:
    """Install the release with git and make, and clone this commit to /src. Raises ControlPlaneError."""
    packages.install(["debootstrap"])
    sources = sources_of(release, debian_sources())
    if not sources:
        raise ControlPlaneError("apt on this machine has no Debian archive; run `apt-get update`")
    shutil.rmtree(root, ignore_errors=True)
    root.parent.mkdir(exist_ok=True)
    progress.say(f"debootstrap: Debian {debian.MACHINES[release]} ({release}) in {root}")
    options = ("--variant=minbase", "--include=git,make", "--force-check-gpg")
    runner = LoggedRunner(packages.root() / "other-debian.log", progress)
    runner.run("debootstrap", *options, release, str(root), sources[0].uri, limit_s=INSTALL_LIMIT_S)
    runner.run("git", "clone", "--quiet", str(PROJECT), str(root / "src"), limit_s=300.0)


def run(commands: Sequence[str], root: Path, environ: Mapping[str, str], progress: Progress) -> int:
    """Run the commands in /src of the new root up to the first that fails; return its exit code, or 0."""
    for command in commands:
        began = time.monotonic()
        enter = ("unshare", "--mount", "--propagation=private", "--pid", "--fork", "--kill-child", "sh", "-euc", ENTER)
        code = subprocess.run([*enter, str(root), command], env=environ, check=False).returncode
        progress.say(f"{command}: exit code {code} after {(time.monotonic() - began) / 60:.1f} minutes")
        if code:
            return code
    return 0


def main() -> int:
    """Run the commands on the other release; return the exit code."""
    release = other_release(Path("/etc/os-release").read_text())
    root, progress = PROJECT / "build" / f"debian-{release}", Progress(f"debian {debian.MACHINES[release]}")
    if os.geteuid() != 0:
        print("error: root is required to install another release: debootstrap creates device files", file=sys.stderr)
        return 1
    try:
        install(release, root, progress)
        pip_settings = output_of(sys.executable, "-m", "pip", "config", "list")
    except ControlPlaneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for name in ("hosts", "resolv.conf"):
        shutil.copy(f"/etc/{name}", root / "etc")
    if certificates := dict(PIP_SETTING.findall(pip_settings)).get("cert"):
        shutil.copy(certificates, root / CERTIFICATES)
    return run(
        [" ".join(sys.argv[1:])] if sys.argv[1:] else COMMANDS, root, environment(pip_settings, os.environ), progress
    )


if __name__ == "__main__":
    sys.exit(main())
