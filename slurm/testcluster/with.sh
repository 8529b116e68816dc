#!/usr/bin/env bash
# Runs a command beside a cluster, as root: with.sh COMMAND...; the cluster is stopped afterwards unless it was up before.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/cluster.sh"

[ -e "$DIR/env.sh" ] || trap 'bash "$HERE/down.sh"' EXIT
bash "$HERE/up.sh"
. "$DIR/env.sh"
"$@"
