#!/usr/bin/env bash
# Changes a running cluster, as root: reconfigure.sh SETTING... Jobs go on.
#   user_signal=on|off     whether a job's own signal (sbatch --signal) is sent when it is preempted
#   kill_wait_s=SECONDS    what SLURM gives a job that it ends, between SIGTERM and SIGKILL; slurmd makes at least 5 of it
set -euo pipefail
usage() {
  sed -n '2,4s/^# //p' "$0" >&2
  exit 2
}
[ $# -ge 1 ] || usage
for setting in "$@"; do
  case $setting in
    user_signal=*) GYRE_SLURM_USER_SIGNAL=${setting#*=} ;;
    kill_wait_s=*) GYRE_SLURM_KILL_WAIT_S=${setting#*=} ;;
    *) usage ;;
  esac
done
. "$(dirname "${BASH_SOURCE[0]}")/cluster.sh"
. "$HERE/configuration.sh"

need_root
need_cluster
lock
write_configuration "$DIR/next"
mv "$DIR"/next/* "$DIR/"
write_knobs
scontrol reconfigure
