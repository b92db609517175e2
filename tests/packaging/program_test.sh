#!/usr/bin/env bash
# The installed qevict program runs from a folder of its own and needs nothing of the source or build tree.
#   program_test.sh SOURCE_DIR BUILD_DIR VERSION
set -euo pipefail
source=$1 build=$2 version=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }

cmake --install "$build" --prefix "$work/first" > "$work/log" || { cat "$work/log"; fail "install"; }
mv "$work/first" "$work/moved"
program=$work/moved/bin/qevict
[ -x "$program" ] || fail "no program was installed"
# With static libraries there is no search path at all.
if readelf -d "$program" | grep -E 'R(UN)?PATH' | grep -F "$source"; then fail "the program looks for libraries in the source tree"; fi
ldd "$program" > "$work/libraries"
! grep -E "not found|$source|$build" "$work/libraries" || fail "the program needs the libraries above"
cd "$work"
env -i HOME="$work" "$program" version | tee "$work/out"
grep -qF "$version" "$work/out" || fail "the program does not say its version, $version"
