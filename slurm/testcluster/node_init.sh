#!/usr/bin/env bash
# PID 1 of a node: node_init.sh NODE, from a copy in the cluster's folder, by which every checkout knows the node. Gives it its own name,
# /dev/shm and name service, runs slurmd, takes in orphans. SIGKILL to it is a power-off.
# The file system is the machine's: nodes share homes and /tmp, as they would over NFS.
set -e
folder=$(dirname "$0")
hostname "$1"
mount -t tmpfs -o size=2g tmpfs /dev/shm
mount --bind "$folder/hosts" /etc/hosts
mount --bind "$folder/nsswitch.conf" /etc/nsswitch.conf
slurmd -D -N "$1" -f "$folder/slurm.conf" &
while :; do
  sleep 3600 &
  wait $!
done
