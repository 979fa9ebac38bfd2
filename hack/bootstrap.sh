#!/usr/bin/env bash
# Create .venv in the project's root with everything that development and tests need, on a bare Debian 12 or 13, as root or with sudo.
# With --control-plane, fail before anything is installed if this machine has no way to the programs of a control plane.
#
# The project is installed as editable. .venv/links has the same packages as a tree of links, for tools that do not run import
# hooks. A hash of the inputs (setup.cfg, pyproject.toml, hack/constraints.txt, and a Python >= 3.11; PYTHON names another one)
# is stored in .venv. If it is unchanged, a second run ends within milliseconds and needs no network.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root"
venv=.venv
stamp=$venv/.bootstrap-stamp

say() { printf '[bootstrap %3ds] %s\n' "$SECONDS" "$*" >&2; }
fail() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# Hash content, not times: a fresh checkout of the same commit has the same hash.
fingerprint() {
    { printf '%s\n' "$root"; "$1" --version; cat setup.cfg pyproject.toml hack/constraints.txt; } 2>&1 | sha256sum | cut -d' ' -f1
}

is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
    local candidate
    for candidate in ${PYTHON:-python3.11 python3 python3.12 python3.13 python3.14}; do
        if command -v "$candidate" >/dev/null && is_new_enough "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        fail "root is required for: $*; run it as root, then run this script again"
    fi
}

apt_install() {
    command -v apt-get >/dev/null || fail "apt-get is missing; install $* manually"
    say "installing $* (apt-get install)"
    local install=(env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends -o DPkg::Lock::Timeout=120 "$@")
    as_root "${install[@]}" >/dev/null && return
    # The package lists may be missing or outdated. Ignore errors of unrelated repositories; apt-get install reports real ones.
    say "fetching the package lists (apt-get update)"
    as_root apt-get update -qq || say "apt-get update failed (perhaps for an unrelated repository); continuing"
    as_root "${install[@]}" >/dev/null || fail "cannot install $*"
}

has_control_plane() {
    local name cache=${XDG_CACHE_HOME:-${HOME:-}/.cache}/tfjob-operator
    for name in etcd kube-apiserver kube-controller-manager kubectl; do
        [ -e "${KUBEBUILDER_ASSETS:-}/$name" ] || compgen -G "$cache/control-plane-*/$name" >/dev/null || return 1
    done
}

# On a new machine apt has no indexes, and knows no origins.
has_debian_archive() {
    command -v apt-get >/dev/null || return 1
    grep -sqx ID=debian /etc/os-release || grep -qx Debian <<<"$(apt-get indextargets --format '$(ORIGIN)')"
}

has_venv() {
    "$1" -c 'import ensurepip, venv' 2>/dev/null
}

if [ "${1:-}" = --control-plane ] && ! has_control_plane && ! has_debian_archive; then
    cat hack/control_plane/elsewhere.txt >&2
    fail "the programs of a control plane are not cached here, and there is no Debian archive to build them from (see above)"
fi

if [ -x $venv/bin/python ] && [ -f $stamp ] && [ "$(cat $stamp)" = "$(fingerprint $venv/bin/python)" ]; then
    exit 0
fi

if ! python="$(find_python)"; then
    [ -z "${PYTHON:-}" ] || fail "PYTHON=$PYTHON is not a Python >= 3.11"
    apt_install python3 python3-venv
    python="$(find_python)" || fail "no Python >= 3.11 found; Debian has one (python3), elsewhere set PYTHON to its path"
fi
if ! has_venv "$python"; then
    apt_install python3-venv
    has_venv "$python" || fail "$python cannot make virtual environments (no ensurepip); set PYTHON to another one"
fi

if [ ! -x $venv/bin/python ] || ! is_new_enough $venv/bin/python || ! $venv/bin/python -m pip --version >/dev/null 2>&1; then
    say "making $venv with $python ($("$python" --version))"
    "$python" -m venv --clear $venv
fi
rm -f $stamp
say "installing the packages of setup.cfg into $venv (a minute or so)"
log=$venv/bootstrap.log
if ! $venv/bin/python -m pip install --disable-pip-version-check --no-input -e '.[test,dev]' -c hack/constraints.txt >$log 2>&1; then
    tail -n 15 $log >&2
    fail "pip failed; the whole log is in $root/$log"
fi
rm -rf $venv/links
$venv/bin/python -m hack.package_links $venv/links
fingerprint $venv/bin/python >$stamp
say "done: $venv/bin/python"
