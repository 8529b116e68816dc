# Sourced: writes what SLURM reads. Reasons stand where a value is not SLURM's own.

write_configuration() { # write_configuration FOLDER
  { controller_configuration; node_lines; partition_lines; } >"$1/slurm.conf"
  # Nothing below uses control groups; a named plugin keeps slurmd from asking systemd for some.
  printf '%s\n' CgroupAutomount=no CgroupPlugin=cgroup/v1 ConstrainCores=no ConstrainRAMSpace=no >"$1/cgroup.conf"
  rm -f "$1/gres.conf"
  [ "$GYRE_SLURM_GPUS" = 0 ] || echo "Name=gpu File=$DIR/run/gpu[0-$((GYRE_SLURM_GPUS - 1))]" >"$1/gres.conf"
}

write_knobs() { # read again by cluster.sh; knobs said in the environment win
  local knob
  for knob in NODES CPUS MEM_MB GPUS USER_SIGNAL KILL_WAIT_S; do
    knob=GYRE_SLURM_$knob
    printf ': "${%s:=%s}"\n' "$knob" "${!knob}"
  done >"$DIR/knobs"
}

controller_configuration() {
  local parameters=
  [ "$GYRE_SLURM_USER_SIGNAL" = off ] || parameters=SlurmctldParameters=preempt_send_user_signal
  cat <<C
ClusterName=$NAME
SlurmctldHost=$(hostname -s)($CONTROLLER)
SlurmctldPort=6817
# Only the cluster's own network reaches the controller, and several controllers may share the port.
CommunicationParameters=NoCtldInAddrAny
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$SOCKET
StateSaveLocation=$DIR/state
SlurmdSpoolDir=$DIR/spool/%n
SlurmctldPidFile=$DIR/run/slurmctld.pid
SlurmdPidFile=$DIR/run/slurmd-%n.pid
SlurmctldLogFile=$DIR/log/slurmctld.log
SlurmdLogFile=$DIR/log/slurmd-%n.log
SlurmctldDebug=verbose
SlurmdDebug=verbose
$parameters
# Nodes claim more than the machine has.
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc=$DIR/log/jobcomp.txt
MpiDefault=none
SwitchType=switch/none
PropagateResourceLimits=NONE
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
# Short intervals and limits: tests wait for every one of them.
SchedulerParameters=sched_interval=2,bf_interval=2,bf_window=1440,batch_sched_delay=0
PriorityType=priority/basic
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
KillWait=$GYRE_SLURM_KILL_WAIT_S
SlurmdTimeout=15
SlurmctldTimeout=30
MessageTimeout=10
InactiveLimit=0
MinJobAge=3600
# A node that was lost takes jobs again as soon as it answers.
ReturnToService=2
C
}

node_lines() {
  local node gpus=
  [ "$GYRE_SLURM_GPUS" = 0 ] || { echo GresTypes=gpu; gpus=" Gres=gpu:$GYRE_SLURM_GPUS"; }
  for node in $(nodes); do
    echo "NodeName=$node NodeAddr=$(address "$node") NodeHostname=$node Port=6818 Sockets=1 CoresPerSocket=$GYRE_SLURM_CPUS" \
      "ThreadsPerCore=1 RealMemory=$GYRE_SLURM_MEM_MB$gpus State=UNKNOWN"
  done
}

# Jobs of `high` preempt all others, jobs of `main` those of `low` and `low0`; `low0` gives its victims no time.
partition_lines() {
  local every="Nodes=ALL MaxTime=INFINITE DefaultTime=60 State=UP"
  echo "PartitionName=main $every Default=YES PriorityTier=10 PreemptMode=REQUEUE GraceTime=10"
  echo "PartitionName=low $every PriorityTier=1 PreemptMode=REQUEUE GraceTime=10"
  echo "PartitionName=low0 $every PriorityTier=1 PreemptMode=REQUEUE GraceTime=0"
  echo "PartitionName=high $every PriorityTier=100 PreemptMode=OFF"
}
