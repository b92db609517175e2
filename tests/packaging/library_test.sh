#!/usr/bin/env bash
# libqevict builds without ggml, installs, can be moved, and serves a program of another project through its CMake package and
# through pkg-config.   library_test.sh SOURCE_DIR VERSION CXX
set -euo pipefail
source=$1 version=$2 export_cxx=$3
export CXX=$export_cxx
here=$source/tests/packaging
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }

echo "== build and install without ggml"
cmake -S "$source" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DQEVICT_ENGINE=OFF -DQEVICT_TESTS=OFF -DQEVICT_BENCH=OFF \
  -DCMAKE_INSTALL_LIBDIR=lib > "$work/log" || { cat "$work/log"; fail "configure"; }
cmake --build "$work/build" > "$work/log" || { cat "$work/log"; fail "build"; }
cmake --install "$work/build" --prefix "$work/first" > "$work/log"
mv "$work/first" "$work/moved"
rm -rf "$work/build"
prefix=$work/moved
[ ! -e "$prefix/bin/qevict" ] || fail "a library without the engine installs a program"
for path in "$source" "$work"; do
  ! grep -rIl "$path" "$prefix" || fail "an installed file above names $path"
  ! grep -al "$path" "$prefix/lib/libqevict.a" || fail "the library names $path"
done

echo "== consumer through find_package"
cmake -S "$here/consumer" -B "$work/consumer" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" > "$work/log" || { cat "$work/log"; fail "find_package"; }
cmake --build "$work/consumer" > "$work/log" || { cat "$work/log"; fail "consumer"; }
"$work/consumer/consumer" "$version" || fail "the consumer built by CMake does not run"

echo "== consumer through pkg-config"
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
[ "$(pkg-config --modversion qevict)" = "$version" ] || fail "pkg-config names another version"
read -ra flags <<< "$(pkg-config --cflags --libs qevict)"
"$CXX" -std=c++20 "$here/consumer/consumer.cc" "${flags[@]}" -o "$work/by-pkg-config"
"$work/by-pkg-config" "$version" || fail "the consumer built with pkg-config does not run"

echo "== every object of the library links with nothing else"
"$CXX" -std=c++20 "$here/consumer/consumer.cc" -Wl,--whole-archive "${flags[@]}" -Wl,--no-whole-archive -o "$work/whole"
"$work/whole" "$version" || fail "the consumer with the whole library does not run"
