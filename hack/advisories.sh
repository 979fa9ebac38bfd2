#!/usr/bin/env bash
# Look up known vulnerabilities of the image's packages and build tools with pip-audit. With --tools, only print the folder of
# pip-audit and of a CycloneDX validator, for PYTHONPATH.
#
# Reads the two lock files of hack/image, and .venv; prints pip-audit's report as JSON. Exit codes: 0 no known vulnerability, 1
# vulnerabilities found, 2 pip-audit or its database is not available (pip-audit itself exits with 1 in that case too).
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
    printf 'cannot check for vulnerabilities: %s\n' "$*" >&2
    exit 2
}

if [ ! -d "$tools" ]; then
    echo "downloading pip-audit" >&2
    rm -rf "$tools.new" # left by an interrupted run: pip does not replace existing files
    "$python" -m pip install --quiet --no-input --disable-pip-version-check --only-binary=:all: --target="$tools.new" \
        "${packages[@]}" || unknown "cannot download pip-audit"
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
elif grep -q '"skip_reason":' "$work/pretty"; then # an index without advisories answers that it does not know the package
    unknown "the index has no data about some packages"
fi
echo "no known vulnerabilities in the packages of the image's lock"
