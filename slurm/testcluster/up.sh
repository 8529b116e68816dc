#!/usr/bin/env bash
# Starts a SLURM of one machine, or what is missing of it: up.sh (as root). Knobs: cluster.sh. Every node that is off or cut comes back.
# Then `. $GYRE_SLURM_DIR/env.sh` is all that a client needs, as any user.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/cluster.sh"
. "$HERE/configuration.sh"
. "$HERE/nodes.sh"

why=$(problem)
[ -z "$why" ] || refuse "$why"
lock

prepare_folder() {
  [ -e "$DIR/knobs" ] || rm -rf "$DIR/log" # of the last one
  mkdir -p "$DIR"/{state,spool,log,run,munge,next}
  chmod 755 "$DIR" "$DIR/run" "$DIR/log"
  cp "$HERE/node_init.sh" "$DIR/node_init.sh.new" && mv "$DIR/node_init.sh.new" "$DIR/node_init.sh" # under running nodes, so by rename
  chmod 700 "$DIR/munge"
  local k
  for k in $(seq 0 $((GYRE_SLURM_GPUS - 1))); do [ -e "$DIR/run/gpu$k" ] || mknod "$DIR/run/gpu$k" c 1 3; done
}

configure() {
  write_configuration "$DIR/next"
  if running "$SLURMCTLD" && ! cmp -s "$DIR/slurm.conf" "$DIR/next/slurm.conf"; then
    diff "$DIR/slurm.conf" "$DIR/next/slurm.conf" >&2 || true
    refuse "a cluster with other settings is up in $DIR: run make slurm-down first"
  fi
  mv "$DIR"/next/* "$DIR/"
  write_knobs
}

# Its own daemon, key and socket: a munge that the machine may have is left alone.
start_munge() {
  local key=$DIR/munge/munge.key
  [ -s "$key" ] || (umask 077 && head -c 128 /dev/urandom >"$key.new" && mv "$key.new" "$key")
  if ! running "$MUNGED"; then
    rm -f "$SOCKET" "$SOCKET.lock"
    # shellcheck disable=SC2086
    start munged $MUNGED --seed-file="$DIR/munge/seed" --pid-file="$DIR/munge/munged.pid" --log-file="$DIR/munge/munged.log"
  fi
  await 10 munge_answers || refuse "munge does not answer; see $DIR/log/munged.out"
}
munge_answers() { munge -n -S "$SOCKET" 2>/dev/null | unmunge -S "$SOCKET" >/dev/null 2>&1; }

# It listens where its own host name leads, and must see the cluster's address there.
start_controller() {
  start slurmctld unshare --mount bash -c "mount --bind '$DIR/hosts' /etc/hosts && exec $SLURMCTLD"
}

await() { # await SECONDS COMMAND: until it succeeds
  local limit=$((SECONDS + $1))
  shift
  until "$@"; do
    [ $SECONDS -lt $limit ] || return 1
    sleep 0.1
  done
}
all_usable() { [ "$(timeout 5 sinfo -h -p main -N -o %T 2>/dev/null | grep -cxE 'idle|mixed|allocated|completing')" = "$GYRE_SLURM_NODES" ]; }

prepare_folder
configure
start_munge
make_bridge
write_name_service
running "$SLURMCTLD" || start_controller
for node in $(nodes); do
  plug_in "$node"
  start_node "$node"
done
await 60 all_usable || { sinfo -p main -N -o '%N %T %E' >&2; refuse "not every node came up within 60 s; see $DIR/log"; }
printf 'export GYRE_SLURM_NUMBER=%s GYRE_SLURM_DIR=%s SLURM_CONF=%s\n' "$GYRE_SLURM_NUMBER" "$DIR" "$SLURM_CONF" >"$DIR/env.sh"
echo "slurm: $GYRE_SLURM_NODES nodes are up; . $DIR/env.sh"
