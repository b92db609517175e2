#!/usr/bin/env bash
# Runs clang-tidy with the checks of .clang-tidy on our sources.
#   scripts/lint.sh BUILD_DIR [BASE]     BUILD_DIR is configured; with BASE only sources that differ from that commit
set -euo pipefail
build=$(realpath "${1:?usage: scripts/lint.sh BUILD_DIR [BASE]}") base=${2:-}
cd "$(dirname "$0")/.."
tidy=clang-tidy-14
command -v $tidy > /dev/null || { echo "error: $tidy is missing; scripts/install-packages.sh ci installs it" >&2; exit 1; }
[ -e "$build/compile_commands.json" ] || { echo "error: $build is not configured; run cmake --preset ${build##*/}" >&2; exit 1; }

# The gate itself: each finding that the known-bad file and its header hold must be reported, and as an error, also where a
# unity build's source includes them.
unity=$(mktemp --suffix=.cxx)
trap 'rm -f "$unity"' EXIT
echo "#include \"$PWD/tests/lint/known_bad.cc\"" > "$unity"
findings=$($tidy --quiet --config-file=.clang-tidy "$unity" -- -std=c++20 -Itests/lint 2>&1) && {
  echo "error: $tidy accepts tests/lint/known_bad.cc, so it checks nothing" >&2; exit 1; }
for finding in 'known_bad.cc:.*error:.*bugprone-use-after-move' 'known_bad.h:.*error:.*readability-identifier-naming'; do
  grep -q "$finding" <<< "$findings" || { echo "$findings"; echo "error: $tidy does not report $finding" >&2; exit 1; }
done

# A kernel's source is compiled once per SIMD level; one level is enough here.
mapfile -t sources < <(python3 - "$build" "$PWD" "$base" << 'PYTHON'
import json, subprocess, sys
build, top, base = sys.argv[1:]
changed = None
if base:
    names = subprocess.run(["git", "diff", "--name-only", base], check=True, capture_output=True, text=True).stdout.split()
    changed = {f"{top}/{name}" for name in names}
for entry in json.load(open(build + "/compile_commands.json")):
    path = entry["file"]
    if path.startswith(build) and path.endswith((".cc", ".cxx")):
        if path.endswith(("_avx2.cc", "_neon.cc")):
            print(path)
        elif "/Unity/" in path and (changed is None or any(name in open(path).read() for name in changed)):
            print(path)
    elif changed is None or path in changed:
        print(path)
PYTHON
)
echo "checking ${#sources[@]} sources"
printf '%s\0' "${sources[@]}" | xargs -0 -r -n 1 -P "$(nproc)" $tidy --quiet --extra-arg=-Wno-unknown-warning-option -p "$build" 2>&1 |
  { ! grep -v -E '^[0-9]+ warnings? generated|^$|^Suppressed|^Use -header-filter'; }
