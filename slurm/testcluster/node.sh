#!/usr/bin/env bash
# A fault of one node, as root: node.sh ACTION NODE
#   off | on          power off: every process of the node dies at once; power on again
#   cut | mend        network unplugged, processes live on; plugged in again
#   pause | resume    every process of the node stands still; goes on
#   sh COMMAND...     run a command inside the node, not as a job
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/cluster.sh"
. "$HERE/nodes.sh"

usage() {
  sed -n '2,6s/^# //p' "$0" >&2
  exit 2
}
[ $# -ge 2 ] || usage
need_root
need_cluster
action=$1 node=$2
shift 2
nodes | grep -qx "$node" || refuse "no node $node: there are $(nodes | xargs)"
[ "$action" = sh ] || lock

case $action in
  off) power_off "$node" ;;
  on) plug_in "$node" && start_node "$node" ;;
  cut) ip link set "$(link "$node")" down ;;
  mend) ip link set "$(link "$node")" up ;;
  pause) inside "$node" | xargs -r kill -STOP ;;
  resume) inside "$node" | xargs -r kill -CONT ;;
  sh) exec nsenter -t "$(init_of "$node")" -a "$@" ;;
  *) usage ;;
esac
