#!/usr/bin/env bash
# Obtains ggml, libllama and its common library as source, checks them by hash, builds them once and installs them into PREFIX.
#   scripts/build-llama.sh PREFIX [native|variants]
# native (default): the best flags for this machine, static libraries. variants: one shared library per CPU level, chosen at
# run time, for a package. The source archive is kept in the user's cache folder and fetched again when it is missing.
set -euo pipefail
prefix=${1:?usage: scripts/build-llama.sh PREFIX [native|variants]}; cpu=${2:-native}
package=llama-cpp-python version=0.3.36
archive=llama_cpp_python-$version.tar.gz
sha256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
top=$(cd "$(dirname "$0")/.." && pwd)
cache=${QEVICT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/qevict}/downloads
stamp=$prefix/qevict-llama-$version-$cpu
[ -e "$stamp" ] && exit 0

check() { echo "$sha256  $cache/$archive" | sha256sum --check --status; }
mkdir -p "$cache"
if ! { [ -e "$cache/$archive" ] && check; }; then
  rm -f "$cache/$archive"
  echo "fetching $package $version (77 MB)" >&2
  python3 -m pip download --quiet --no-deps --no-binary :all: --dest "$cache" "$package==$version" || {
    echo "error: cannot fetch $package $version with pip; check the network and that python3-pip is installed" >&2; exit 1; }
  check || { echo "error: $cache/$archive does not have the expected sha256; remove it and run again" >&2; exit 1; }
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/qevict-llama.XXXXXX"); trap 'rm -rf "$work"' EXIT
tar -xzf "$cache/$archive" -C "$work" --strip-components=1 "llama_cpp_python-$version/vendor/llama.cpp"
case $cpu in
  native) flags=(-DBUILD_SHARED_LIBS=OFF -DGGML_NATIVE=ON) ;;
  variants) flags=(-DBUILD_SHARED_LIBS=ON -DGGML_NATIVE=OFF -DGGML_BACKEND_DL=ON -DGGML_CPU_ALL_VARIANTS=ON) ;;
  *) echo "error: unknown CPU choice '$cpu'; use native or variants" >&2; exit 2 ;;
esac
echo "building ggml and libllama $version for $cpu (once, a few minutes)" >&2
cmake -S "$top/cmake/llama" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$prefix" \
  -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_POSITION_INDEPENDENT_CODE=ON \
  -DQEVICT_LLAMA_SOURCE="$work/vendor/llama.cpp" "${flags[@]}" > "$work/configure.log" 2>&1 || { tail -n 40 "$work/configure.log" >&2; exit 1; }
cmake --build "$work/build" > "$work/build.log" 2>&1 || { grep -A 20 -m 1 FAILED "$work/build.log" >&2; exit 1; }
cmake --install "$work/build" > "$work/install.log" 2>&1 || { tail -n 20 "$work/install.log" >&2; exit 1; }
: > "$stamp"
