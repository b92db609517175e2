#!/usr/bin/env bash
# Obtains ggml, libllama and its common library as source, checks them by hash, builds them once and installs them into PREFIX.
#   scripts/build-llama.sh PREFIX [native|variants|blas]
# native (default): the best flags for this machine, static libraries. variants: one shared library per CPU level, chosen at
# run time, for a package. blas: native with the OpenBLAS backend, for a peer of `qevict bench` (bench/peers). The archive is
# kept in the user's cache folder; PREFIX appears only when it is complete, and an interrupted build goes on where it stopped.
set -euo pipefail
usage="usage: scripts/build-llama.sh PREFIX [native|variants|blas]"
prefix=$(realpath -m "${1:?$usage}") cpu=${2:-native}
package=llama-cpp-python version=0.3.36
archive=llama_cpp_python-$version.tar.gz
sha256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
recipe=$(cd "$(dirname "$0")/.." && pwd)/cmake/llama

die() { echo "error: $*" >&2; exit 1; }

case $cpu in
  native | blas)
    flags=(-DBUILD_SHARED_LIBS=OFF -DGGML_NATIVE=ON)
    if [ "$cpu" = blas ]; then flags+=(-DGGML_BLAS=ON -DGGML_BLAS_VENDOR=OpenBLAS); fi
    machine=$(grep -m 1 -E '^(flags|Features)' /proc/cpuinfo || uname -m) ;;
  variants)
    flags=(-DBUILD_SHARED_LIBS=ON -DGGML_NATIVE=OFF -DGGML_BACKEND_DL=ON -DGGML_CPU_ALL_VARIANTS=ON)
    machine=$(uname -m) ;;
  *) echo "$usage" >&2; exit 2 ;;
esac
# A build of another version, recipe or CPU is not taken for this one.
id=$(echo "$sha256 ${flags[*]} $machine" | cat - "$recipe/CMakeLists.txt" | sha256sum | cut -c 1-12)
stamp=$prefix/qevict-llama-$version-$cpu-$id
work=$prefix.work
if [ -e "$stamp" ]; then exit 0; fi

mkdir -p "$work" 2>/dev/null || die "cannot create $work; the build folder must be writable"
exec 9> "$prefix.lock"
flock -n 9 || { echo "waiting for another build of ggml and libllama" >&2; flock 9; }
if [ -e "$stamp" ]; then exit 0; fi
if [ "$(cat "$work/id" 2>/dev/null)" != "$id" ]; then rm -rf "$work"; mkdir "$work"; echo "$id" > "$work/id"; fi

# pip is the client of the package registry, and it asks a source archive's own build tools for the metadata of what it
# fetched. A backend that knows the two answers spares fetching and building those tools.
fetch() {
  python3 -m pip --version > /dev/null 2>&1 || die "pip is missing; on Debian: apt-get install python3-pip"
  mkdir -p "$work/backend/scikit_build_core"
  : > "$work/backend/scikit_build_core/__init__.py"
  cat > "$work/backend/scikit_build_core/build.py" << PYTHON
import os

def prepare_metadata_for_build_wheel(folder, config_settings=None):
    name = "llama_cpp_python-$version.dist-info"
    os.mkdir(os.path.join(folder, name))
    with open(os.path.join(folder, name, "METADATA"), "w") as metadata:
        metadata.write("Metadata-Version: 2.1\nName: llama_cpp_python\nVersion: $version\n")
    return name
PYTHON
  local pip=(env PYTHONPATH="$work/backend" python3 -m pip download --no-deps --no-build-isolation --no-binary :all:
             --dest "$partial" "$package==$version")
  if [ -t 2 ]; then "${pip[@]}" >&2 && return; else
    "${pip[@]}" > "$work/fetch.log" 2>&1 && return
    grep '^ERROR' "$work/fetch.log" >&2 || true
  fi
  die "cannot fetch $package $version (77 MB) with pip; check that this machine has a network and room in $cache"
}

obtain() {
  cache=${QEVICT_CACHE:-${XDG_CACHE_HOME:-${HOME:?set HOME or QEVICT_CACHE}/.cache}/qevict}/downloads
  mkdir -p "$cache" 2>/dev/null && [ -w "$cache" ] ||
    die "cannot write to $cache; set QEVICT_CACHE to a folder that you can write to"
  if ! { [ -e "$cache/$archive" ] && echo "$sha256  $cache/$archive" | sha256sum --check --status; }; then
    echo "fetching $package $version (77 MB)" >&2
    partial=$(mktemp -d "$cache/partial.XXXXXX")
    trap 'rm -rf "$partial"' EXIT
    fetch
    echo "$sha256  $partial/$archive" | sha256sum --check --status ||
      die "the fetched $archive does not have the expected sha256; nothing of it was kept"
    mv "$partial/$archive" "$cache/$archive"
  fi
  rm -rf "$work/partial"
  mkdir "$work/partial"
  tar -xzf "$cache/$archive" -C "$work/partial" --strip-components=2 "llama_cpp_python-$version/vendor/llama.cpp"
  mv "$work/partial/llama.cpp" "$work/source"
}

# On a terminal the command's own progress; elsewhere the end of its log when it fails.
run() {
  local log=$work/$1.log
  shift
  if [ -t 2 ]; then "$@" >&2 && return; else "$@" > "$log" 2>&1 && return; tail -n 60 "$log" >&2; fi
  die "ggml and libllama could not be built; see above (run the same command again to go on, remove $prefix.work to start over)"
}

for tool in cmake ninja c++; do
  command -v $tool > /dev/null || die "$tool is missing; scripts/install-packages.sh installs what is needed"
done
[ -d "$work/source" ] || (obtain)  # a subshell: its trap and variables end with it
export CCACHE_BASEDIR=$work CCACHE_NOHASHDIR=1  # where ccache is present, another checkout finds the same objects
echo "building ggml and libllama ($package $version) for $cpu: once, a few minutes" >&2
# The commit is named so that the build does not take the one of an enclosing git repository.
run configure cmake -S "$recipe" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$prefix" \
  -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DLLAMA_BUILD_COMMIT="$version" -DLLAMA_BUILD_NUMBER=0 \
  -DQEVICT_LLAMA_SOURCE="$work/source" "${flags[@]}"
run build cmake --build "$work/build"
rm -rf "$work/stage"
DESTDIR=$work/stage run install cmake --install "$work/build"
: > "$work/stage$stamp"
rm -rf "$prefix"
mv "$work/stage$prefix" "$prefix"
rm -rf "$prefix.work"
