#!/usr/bin/env bash
# Installs what the test cluster needs on Debian or Ubuntu, as root, without starting any of it: install.sh
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/cluster.sh"

need_root
missing=()
for package in "${PACKAGES[@]}"; do dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package"); done
[ ${#missing[@]} -gt 0 ] || exit 0
# Packages ask this file whether they may start their daemons.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
  trap 'rm -f $policy' EXIT
  printf '#!/bin/sh\nexit 101\n' >$policy
  chmod 755 $policy
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -qq -y --no-install-recommends "${missing[@]}"
