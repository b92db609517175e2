#!/usr/bin/env bash
# Makes the peer of `qevict bench --against llama.cpp-blas`: the pinned llama.cpp with OpenBLAS, and the program that drives it.
#   bench/peers/setup-llama-blas.sh
# Both are built in build/ (a few minutes); the program goes into the cache folder, $QEVICT_CACHE/peers. Run it again after an
# update of the source.
set -euo pipefail
if [ $# != 0 ]; then echo "usage: bench/peers/setup-llama-blas.sh" >&2; exit 2; fi
cd "$(dirname "$0")/../.."
peers=${QEVICT_CACHE:-${XDG_CACHE_HOME:-${HOME:?set HOME or QEVICT_CACHE}/.cache}/qevict}/peers
die() { echo "error: $*" >&2; exit 1; }

mkdir -p "$peers" 2>/dev/null && [ -w "$peers" ] || die "cannot write to $peers; set QEVICT_CACHE to a folder that you can write to"
echo '#include <cblas.h>
int main(void) { openblas_set_num_threads(1); return 0; }' > "$peers/check.$$.c"
trap 'rm -f "$peers/check.$$.c" "$peers/llama.cpp-blas.new"' EXIT
cc $(pkg-config --cflags openblas 2> /dev/null) -o /dev/null "$peers/check.$$.c" -lopenblas 2> /dev/null ||
  die "OpenBLAS is missing; on Debian: apt-get install libopenblas-dev pkg-config"

log=build/peer-blas.log
mkdir -p build
echo "building the peer llama.cpp-blas; its log is $log" >&2
cmake -S . -B build/peer-blas -G Ninja -DCMAKE_BUILD_TYPE=Release -DQEVICT_GGML_CPU=blas -DQEVICT_TESTS=OFF \
  -DQEVICT_BENCH=OFF > "$log" 2>&1 &&
  cmake --build build/peer-blas --target qevict_peer_blas >> "$log" 2>&1 || {
  tail -n 40 "$log" >&2; die "the peer could not be built; see above"; }
install -m 755 build/peer-blas/bin/qevict_peer_blas "$peers/llama.cpp-blas.new"
mv "$peers/llama.cpp-blas.new" "$peers/llama.cpp-blas"
echo "made $peers/llama.cpp-blas; now: qevict bench --against llama.cpp-blas ..." >&2
