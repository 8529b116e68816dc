# Sourced: the network of the cluster and its nodes, each a process tree in namespaces of its own.

make_bridge() {
  ip link show "$NAME-br" >/dev/null 2>&1 || ip link add "$NAME-br" type bridge
  ip -4 addr show dev "$NAME-br" | grep -q "$CONTROLLER/" || ip addr add "$CONTROLLER/24" dev "$NAME-br"
  ip link set "$NAME-br" up
}

# What /etc/hosts and nsswitch.conf are inside a node. No name server is reachable there, and torch asks for the name of every peer:
# each question would wait for about 10 s.
write_name_service() {
  local node
  { echo "127.0.0.1 localhost"; echo "$CONTROLLER $(hostname -s) controller"
    for node in $(nodes); do echo "$(address "$node") $node"; done; } >"$DIR/hosts"
  { sed '/^hosts:/d' /etc/nsswitch.conf 2>/dev/null; echo "hosts: files"; } >"$DIR/nsswitch.conf"
  [ -e /etc/nsswitch.conf ] || : >/etc/nsswitch.conf # a file is needed to lay the other one over
}

plug_in() { # plug_in NODE: its network namespace and the cable to the bridge
  local node=$1 ns
  ns=$(namespace "$node")
  [ -e "/run/netns/$ns" ] || ip netns add "$ns"
  ip -n "$ns" link set lo up
  if ! ip -n "$ns" link show eth0 >/dev/null 2>&1; then
    ip link del "$(link "$node")" 2>/dev/null || true
    ip link add "$(link "$node")" type veth peer name eth0 netns "$ns"
  fi
  ip link set "$(link "$node")" master "$NAME-br" up
  ip -n "$ns" link set eth0 up
  ip -n "$ns" addr replace "$(address "$node")/24" dev eth0
  ip -n "$ns" route replace default via "$CONTROLLER"
}

node_running() { running "$NODE $1\$"; }
start_node() { # start_node NODE: unless it runs
  node_running "$1" && return
  mkdir -p "$DIR/spool/$1"
  # shellcheck disable=SC2086 # words without blanks, checked in cluster.sh
  start "node-$1" nsenter --net="/run/netns/$(namespace "$1")" $NODE "$1"
}
power_off() { end KILL "$NODE $1\$"; } # PID 1 of the node dies with it, and everything inside with that

# Processes inside a node, seen from outside. The namespace may be gone already.
inside() { ip netns pids "$(namespace "$1")" 2>/dev/null || true; }
# The node's PID 1: the child of what was started here.
init_of() { pgrep -P "$(pgrep -f -- "^$NODE $1\$")"; }
