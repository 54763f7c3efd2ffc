#!/bin/bash
# in_slurm.sh COMMAND...: start Slurm on the hosts of the file `hosts`, run the command in an allocation of all of them, and
# stop Slurm. Runs on the first host, as root, with Debian's packages munge, slurmctld, slurmd and slurm-client.
set -e
mapfile -t hosts < hosts
folder=$(mktemp -d)
connected="python3 -m ddpcheck.while_connected"  # else killing ssh leaves processes on its host
stop() {
    set +e
    if ! scontrol shutdown 2> /dev/null; then kill $(jobs -p) 2> /dev/null; fi
    wait "${daemons[@]}"  # so that their ports are free for the next cluster
    kill "$munged"
    wait
    rm -rf "$folder"
}
trap stop EXIT
trap 'exit 143' TERM

cat > "$folder/slurm.conf" << END
ClusterName=emulated
SlurmctldHost=${hosts[0]}
NodeName=$(paste -sd, hosts) CPUs=$(nproc)
PartitionName=all Nodes=ALL Default=YES State=UP
SlurmUser=root
AuthInfo=socket=$folder/munge
StateSaveLocation=$folder
SlurmctldPidFile=$folder/controller
SlurmdPidFile=$folder/%n-process
SlurmdSpoolDir=$folder/%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
TmpFS=/dev/shm
END
export SLURM_CONF=$folder/slurm.conf

(umask 077 && head -c 1024 /dev/urandom > "$folder/key")
munged --foreground --force --key-file "$folder/key" --socket "$folder/munge" --pid-file "$folder/munged" \
    --seed-file "$folder/seed" 2> "$folder/munged.log" &
munged=$!
slurmctld -D 2> "$folder/slurmctld.log" &
daemons=($!)
for host in "${hosts[@]}"; do
    ssh "$host" "SLURM_CONF=$SLURM_CONF $connected slurmd -D -N $host" 2> "$folder/$host.log" &
    daemons+=($!)
done
salloc --quiet --immediate=60 --nodes "${#hosts[@]}" "$@"
