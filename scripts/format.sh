#!/usr/bin/env bash
# Formats our C++ sources with the pinned clang-format, or with --check lists those that are not formatted and fails.
set -euo pipefail
cd "$(dirname "$0")/.."
formatter=clang-format-14
command -v $formatter > /dev/null || { echo "error: $formatter is missing; scripts/install-packages.sh ci installs it" >&2; exit 1; }
mapfile -t sources < <(git ls-files '*.h' '*.cc' ':!tests/lint/known_bad.*')
if [ "${1:-}" = --check ]; then
  $formatter --dry-run -Werror "${sources[@]}"
  # The gate itself: a file that is badly formatted must be refused.
  if $formatter --dry-run -Werror tests/lint/known_bad.cc 2> /dev/null; then
    echo "error: $formatter accepts tests/lint/known_bad.cc, so it checks nothing" >&2; exit 1
  fi
  echo "${#sources[@]} files are formatted"
else
  $formatter -i "${sources[@]}"
fi
