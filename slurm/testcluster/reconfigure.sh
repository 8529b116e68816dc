#!/usr/bin/env bash
# Changes a running cluster, as root: reconfigure.sh user_signal=on|off
# Whether a job's own signal (sbatch --signal) is sent when it is preempted. Jobs go on.
set -euo pipefail
case ${1:-} in
  user_signal=on | user_signal=off) GYRE_SLURM_USER_SIGNAL=${1#*=} ;;
  *) sed -n '2,3s/^# //p' "$0" >&2; exit 2 ;;
esac
. "$(dirname "${BASH_SOURCE[0]}")/cluster.sh"
. "$HERE/configuration.sh"

need_root
need_cluster
lock
write_configuration "$DIR/next"
mv "$DIR"/next/* "$DIR/"
write_knobs
scontrol reconfigure
