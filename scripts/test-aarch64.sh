#!/usr/bin/env bash
# Cross-compiles libqevict and its kernel tests for 64-bit Arm and runs them under user-mode emulation. Every test covers the
# neon and the scalar variant. Needs the Debian packages g++-aarch64-linux-gnu, qemu-user, libgtest-dev,
# libhwy-dev and libexpected-dev. Arguments go to ctest.
set -euo pipefail
cd "$(dirname "$0")/.."

for tool in aarch64-linux-gnu-g++:g++-aarch64-linux-gnu qemu-aarch64:qemu-user cmake:cmake ninja:ninja-build; do
  command -v "${tool%%:*}" > /dev/null || {
    echo "error: ${tool%%:*} is missing; install the Debian package ${tool##*:}" >&2; exit 1; }
done
[ -f /usr/src/googletest/CMakeLists.txt ] || {
  echo "error: /usr/src/googletest is missing; install the Debian package libgtest-dev" >&2; exit 1; }

toolchain=$PWD/cmake/toolchains/aarch64-linux-gnu.cmake
launcher=()
if command -v ccache > /dev/null; then launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi

# Debian has no GoogleTest for a foreign architecture without multiarch, but it ships the source.
gtest=$PWD/build/deps/googletest-aarch64
if [ ! -f "$gtest/done" ]; then
  cmake -S /usr/src/googletest -B "$gtest/build" -G Ninja -DCMAKE_TOOLCHAIN_FILE="$toolchain" "${launcher[@]}" \
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$gtest" > /dev/null
  cmake --build "$gtest/build" --target install > /dev/null
  touch "$gtest/done"
fi

build=build/aarch64
cmake -S . -B $build -G Ninja -DCMAKE_TOOLCHAIN_FILE="$toolchain" -DCMAKE_PREFIX_PATH="$gtest" \
  -DCMAKE_BUILD_TYPE=Release -DQEVICT_WERROR=ON -DQEVICT_ENGINE=OFF -DQEVICT_BENCH=OFF
cmake --build $build --target kernels_test
ctest --test-dir $build -L '^kernels$' --no-tests=error --output-on-failure --parallel "$(nproc)" "$@"
