#!/usr/bin/env bash
# Look up known vulnerabilities of what the image installs, and of what builds it, in the database that pip-audit asks.
# With --tools it only prints the folder, for PYTHONPATH, of pip-audit and of what checks a document of CycloneDX.
#
# In: the two locks of hack/image, and .venv. Out: pip-audit's report as JSON. Exit codes: 0 no vulnerability is known, 1 some are,
# 2 nothing is known: pip-audit or its database cannot be had here. pip-audit itself ends with 1 also in the last case.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
python="$root/.venv/bin/python"
packages=(pip-audit==2.10.1 'cyclonedx-python-lib[json-validation]==11.12.0')
tools="$("$python" -c 'from hack import packages; print(packages.root())')/advisories-$("$python" -V | tr -d ' ')-2.10.1-11.12.0"
if [ "${1:-}" = --tools ]; then
    echo "$tools"
    exit
fi

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
unknown() {
    printf 'nothing is known about vulnerabilities: %s\n' "$*" >&2
    exit 2
}

if [ ! -d "$tools" ]; then
    echo "fetching pip-audit" >&2
    rm -rf "$tools.new" # of a run that was interrupted: pip does not replace what is there
    "$python" -m pip install --quiet --no-input --disable-pip-version-check --only-binary=:all: --target="$tools.new" \
        "${packages[@]}" || unknown "pip-audit cannot be fetched"
    mv -T "$tools.new" "$tools"
fi
locks=("--requirement=$root/hack/image/requirements.txt" "--requirement=$root/hack/image/build-requirements.txt")
PYTHONPATH="$tools" timeout 300 "$python" -m pip_audit --require-hashes --disable-pip --progress-spinner=off --format=json \
    "${locks[@]}" >"$work/report" 2>"$work/log" || true
if ! "$python" -m json.tool --indent=2 "$work/report" >"$work/pretty" 2>/dev/null; then
    unknown "$(tail -n 1 "$work/log")"
elif grep -q '"id":' "$work/pretty"; then
    cat "$work/pretty"
    exit 1
elif grep -q '"skip_reason":' "$work/pretty"; then # an index without advisories says that it does not know the package
    unknown "the index has nothing about some packages"
fi
echo "no vulnerability is known of any package in the image's lock"
