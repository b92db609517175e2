#!/usr/bin/env bash
# Installs the Debian packages that are missing, and only those. This is the one list of them.
#   scripts/install-packages.sh       what building and testing needs
#   scripts/install-packages.sh ci    also what the gates of .ci/run need
set -euo pipefail
packages=(
  ca-certificates g++ cmake ninja-build ccache pkg-config
  python3 python3-pip  # pip fetches the source of ggml and libllama, and the models
  libexpected-dev libfmt-dev libhwy-dev libdnnl-dev libzip-dev libssl-dev libcli11-dev nlohmann-json3-dev
  libgtest-dev libgmock-dev libbenchmark-dev
)
if [ "${1:-}" = ci ]; then
  packages+=(git clang-format-14 clang-tidy-14 g++-aarch64-linux-gnu qemu-user)
fi

if ! command -v dpkg-query apt-get > /dev/null; then
  echo "note: not a Debian system; what is needed has these names there: ${packages[*]}" >&2
  exit 0
fi
missing=()
for package in "${packages[@]}"; do
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} = 0 ]; then exit 0; fi

as_root=()
if [ "$(id -u)" != 0 ]; then
  command -v sudo > /dev/null || {
    echo "error: sudo is missing; run this as root: apt-get install --no-install-recommends ${missing[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 "$@"; }
log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "installing ${#missing[@]} missing Debian packages: ${missing[*]}" >&2
apt update > "$log" 2>&1 && apt install --no-install-recommends "${missing[@]}" >> "$log" 2>&1 || {
  tail -n 15 "$log" >&2
  echo "error: the packages could not be installed (see above; without a network none can): ${missing[*]}" >&2; exit 1; }
