#!/usr/bin/env bash
# Installs what is missing, builds everything with warnings as errors and runs all tests. Arguments go to ctest, e.g. -LE slow.
# Tests that need a real model use SmolLM2-135M (98 MB, fetched once); without a network they say that they were skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install-packages.sh
cmake --preset check
cmake --build --preset check
build/check/bin/qevict models fetch smollm2 ||
  echo "note: tests that need the real model will be skipped, because it could not be fetched" >&2
exec ctest --preset check --no-label-summary --parallel "$(nproc)" "$@"
