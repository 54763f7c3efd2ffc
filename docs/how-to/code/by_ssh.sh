#!/bin/bash
# by_ssh.sh RANKS COMMAND...: start one rank on each host of the file `hosts`, or several in turns.
# The exit status is that of the first rank that fails, and the others end with it.
ranks=$1
shift
words=$(python3 -c 'import shlex, sys; print(shlex.join(sys.argv[1:]))' "$@")  # which ssh takes apart again
mapfile -t hosts < hosts
connected="python3 -m ddpcheck.while_connected"  # else killing ssh leaves processes on its host
trap 'kill $(jobs -p) 2> /dev/null' EXIT
trap 'exit 143' TERM
for ((rank = 0; rank < ranks; rank++)); do
    host=$((rank % ${#hosts[@]})) local_ranks=$(((ranks - rank % ${#hosts[@]} + ${#hosts[@]} - 1) / ${#hosts[@]}))
    place="RANK=$rank WORLD_SIZE=$ranks LOCAL_RANK=$((rank / ${#hosts[@]})) LOCAL_WORLD_SIZE=$local_ranks"
    place+=" MASTER_ADDR=$MASTER_ADDR MASTER_PORT=$MASTER_PORT"
    ssh "${hosts[host]}" "cd ${PWD@Q} && env $place $connected $words" &
done
for ((rank = 0; rank < ranks; rank++)); do
    wait -n || exit $?
done
