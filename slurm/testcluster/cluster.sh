# Sourced by every script beside it: the knobs, what follows from them, and how this cluster's processes are found.
#
# Knobs (environment). What a cluster was started with holds until it is down; only what is said anew is compared with it.
#   GYRE_SLURM_NUMBER       which cluster of this machine, 0-99; several stand side by side    (0)
#   GYRE_SLURM_DIR          configuration, state and logs          (/var/tmp/gyre-slurm; with -NUMBER for others than 0)
#   GYRE_SLURM_NODES        nodes n1..nN, at most 99                                           (4)
#   GYRE_SLURM_CPUS         CPUs that each node claims, whatever the machine has               (2)
#   GYRE_SLURM_MEM_MB       memory that each node claims, likewise                             (16000)
#   GYRE_SLURM_GPUS         GPUs that each node claims; behind them is the null device         (0)
#   GYRE_SLURM_USER_SIGNAL  on, off: whether a job's own signal (--signal) is sent when it is preempted  (on)
#   GYRE_SLURM_KILL_WAIT_S  what SLURM gives a job that it ends, between SIGTERM and SIGKILL   (5)
#
# Invariant: a process, namespace or link of the cluster is recognised by its name alone. No script trusts a recorded process id,
# so whatever was left by a script that died is found by the next one.

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
PACKAGES=(slurmctld slurmd slurm-client munge iproute2 procps util-linux)

refuse() {
  echo "slurm: $*" >&2
  exit 1
}

: "${GYRE_SLURM_NUMBER:=0}"
[[ $GYRE_SLURM_NUMBER =~ ^[0-9]{1,2}$ ]] || refuse "GYRE_SLURM_NUMBER=$GYRE_SLURM_NUMBER: give a number from 0 to 99"
if [ "$GYRE_SLURM_NUMBER" = 0 ]; then DIR=/var/tmp/gyre-slurm; else DIR=/var/tmp/gyre-slurm-$GYRE_SLURM_NUMBER; fi
DIR=${GYRE_SLURM_DIR:-$DIR}
[[ $DIR =~ ^/[A-Za-z0-9/._-]+$ ]] || refuse "GYRE_SLURM_DIR=$DIR: give an absolute path of plain characters"
# Others may make a folder in /var/tmp too; what it says is run by root below.
[ ! -e "$DIR" ] || [ "$(stat -c %u "$DIR")" = 0 ] || refuse "$DIR belongs to somebody else; remove it, or set GYRE_SLURM_DIR"
# shellcheck disable=SC1091
[ ! -e "$DIR/knobs" ] || . "$DIR/knobs"
: "${GYRE_SLURM_NODES:=4}" "${GYRE_SLURM_CPUS:=2}" "${GYRE_SLURM_MEM_MB:=16000}" "${GYRE_SLURM_GPUS:=0}" "${GYRE_SLURM_USER_SIGNAL:=on}"
: "${GYRE_SLURM_KILL_WAIT_S:=5}"
[[ $GYRE_SLURM_NODES =~ ^[1-9][0-9]?$ ]] || refuse "GYRE_SLURM_NODES=$GYRE_SLURM_NODES: give a number from 1 to 99"
[[ $GYRE_SLURM_USER_SIGNAL =~ ^(on|off)$ ]] || refuse "GYRE_SLURM_USER_SIGNAL=$GYRE_SLURM_USER_SIGNAL: give on or off"
[[ $GYRE_SLURM_KILL_WAIT_S =~ ^[1-9][0-9]{0,3}$ ]] || refuse "GYRE_SLURM_KILL_WAIT_S=$GYRE_SLURM_KILL_WAIT_S: give seconds from 1 to 9999"

NAME=gyre$GYRE_SLURM_NUMBER
NET=10.213.$((77 + GYRE_SLURM_NUMBER))
CONTROLLER=$NET.1
SOCKET=$DIR/run/munge.socket
export SLURM_CONF=$DIR/slurm.conf

namespace() { echo "$NAME-$1"; }        # of node n1: gyre0-n1
link() { echo "$NAME-v${1#n}"; }        # its end in the machine: gyre0-v1
address() { echo "$NET.$((10 + ${1#n}))"; }
nodes() { seq -f 'n%g' "$GYRE_SLURM_NODES"; }

# The command lines below are searched for as they stand; a dead process that nobody reaped has none.
MUNGED="munged --foreground --key-file=$DIR/munge/munge.key --socket=$SOCKET"
SLURMCTLD="slurmctld -D -f $SLURM_CONF"
NODE="unshare --uts --ipc --mount --pid --fork --mount-proc --kill-child bash $DIR/node_init.sh"
running() { pgrep -f -- "^$1" >/dev/null; }
end() { # end SIGNAL COMMAND_LINE: and wait until it is gone, at most 10 s
  pkill "-$1" -f -- "^$2" || return 0
  for _ in $(seq 100); do
    running "$2" || return 0
    sleep 0.1
  done
  pkill -KILL -f -- "^$2" || true
}
start() { # start LOG COMMAND...: in a session of its own, without this script's lock
  local log=$1
  shift
  setsid "$@" >>"$DIR/log/$log.out" 2>&1 </dev/null 9>&- &
}

need_root() { [ "$(id -u)" = 0 ] || refuse "needs root (namespaces, links, jobs of other users): run it with sudo"; }
need_cluster() { [ -e "$DIR/env.sh" ] || refuse "no cluster is up in $DIR: run make slurm-up"; }
# One script at a time works on a cluster.
lock() {
  exec 9>"/run/$NAME-slurm.lock"
  flock -w 120 9 || refuse "another script has been working on this cluster for two minutes"
}
# Why no cluster can stand here; empty: one can.
problem() {
  local program missing=()
  [ "$(id -u)" = 0 ] || { echo "needs root (sudo make slurm-up)"; return; }
  for program in slurmctld slurmd sinfo munged ip pgrep unshare nsenter flock; do
    command -v "$program" >/dev/null || missing+=("$program")
  done
  [ ${#missing[@]} = 0 ] || { echo "missing: ${missing[*]}; install with sudo bash slurm/testcluster/install.sh (${PACKAGES[*]})"; return; }
  unshare --net --uts --pid --ipc --mount --fork true 2>/dev/null || { echo "may not make namespaces (CAP_SYS_ADMIN)"; return; }
  local bridge=$NAME-p$BASHPID
  { ip link add "$bridge" type bridge && ip link del "$bridge"; } 2>/dev/null || echo "may not make a bridge (CAP_NET_ADMIN, kernel module)"
}
