#!/usr/bin/env bash
# Makes the peer of `qevict bench --against openvino`: a virtual environment with OpenVINO GenAI, pinned, and the program that
# runs bench/peers/openvino_peer.py in it.
#   bench/peers/setup-openvino.sh [DIR]
# DIR is the environment (300 MB); by default it lies beside the program in the cache folder, $QEVICT_CACHE/peers. Run it again
# after an update of the source; what is there already is not fetched again.
set -euo pipefail
usage="usage: bench/peers/setup-openvino.sh [DIR]"
if [ $# -gt 1 ] || [[ ${1:-} == -* ]]; then echo "$usage" >&2; exit 2; fi
here=$(cd "$(dirname "$0")" && pwd)
peers=${QEVICT_CACHE:-${XDG_CACHE_HOME:-${HOME:?set HOME or QEVICT_CACHE}/.cache}/qevict}/peers
die() { echo "error: $*" >&2; exit 1; }

mkdir -p "$peers" 2>/dev/null && [ -w "$peers" ] || die "cannot write to $peers; set QEVICT_CACHE to a folder that you can write to"
environment=$(realpath -m "${1:-$peers/openvino-environment}")
requirements=$here/openvino-requirements.txt
# The copy is written last: it is there only when all of it is installed.
if ! cmp -s "$requirements" "$environment/requirements.txt"; then
  echo "installing OpenVINO GenAI into $environment (about 100 MB to fetch)" >&2
  python3 -m venv "$environment" > /dev/null 2>&1 ||
    die "python3 cannot make a virtual environment in $environment; on Debian: apt-get install python3-venv"
  "$environment/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: --requirement "$requirements" >&2 ||
    die "pip could not install OpenVINO GenAI; see above"
  "$environment/bin/python" -c 'import openvino_genai' || die "OpenVINO GenAI does not run on this machine; see above"
  cp "$requirements" "$environment/requirements.txt"
fi
cp "$here/openvino_peer.py" "$environment/openvino_peer.py"
program=$(mktemp "$peers/openvino.XXXXXX")
trap 'rm -f "$program"' EXIT
printf '#!/bin/sh\nexec "%s/bin/python" "%s/openvino_peer.py"\n' "$environment" "$environment" > "$program"
chmod 755 "$program"
mv "$program" "$peers/openvino"
echo "made $peers/openvino; now: qevict bench --against openvino ..." >&2
