#!/usr/bin/env bash
# Stops the cluster and everything that runs in it: down.sh (as root). Only logs stay, until the next start.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/cluster.sh"
. "$HERE/nodes.sh"

need_root
lock
end KILL "$NODE " # all of them
end TERM "$SLURMCTLD"
end TERM "$MUNGED"
for ns in $(ip netns list | awk -v name="$NAME-n" 'index($1, name) == 1 {print $1}'); do
  # Entered by hand and left behind: `node.sh sh`.
  ip netns pids "$ns" | xargs -r kill -KILL 2>/dev/null || true
  ip netns del "$ns"
done
for end in $(ip -o link show | grep -oE "$NAME-v[0-9]+" | sort -u); do ip link del "$end" 2>/dev/null || true; done
ip link del "$NAME-br" 2>/dev/null || true
for part in "$DIR"/*; do [ "$part" = "$DIR/log" ] || rm -rf "$part"; done
echo "slurm: down; logs stay in $DIR/log"
