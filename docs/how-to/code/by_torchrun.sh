#!/bin/bash
# by_torchrun.sh RANKS COMMAND...: an agent of torchrun on each host of the file `hosts`, all for the same number of ranks.
# The agents meet at the first host, on a port of their own.
ranks=$1
shift
words=$(python3 -c 'import shlex, sys; print(shlex.join(sys.argv[1:]))' "$@")  # which ssh takes apart again
mapfile -t hosts < hosts
connected="python3 -m ddpcheck.while_connected"  # else killing ssh leaves processes on its host
if ((ranks < ${#hosts[@]})); then hosts=("${hosts[@]:0:ranks}"); fi
if ((ranks % ${#hosts[@]})); then echo "$ranks ranks do not fill ${#hosts[@]} hosts" >&2; exit 2; fi
trap 'kill $(jobs -p) 2> /dev/null' EXIT
trap 'exit 143' TERM
port=$((32000 + RANDOM % 700))
agent="torchrun --nnodes ${#hosts[@]} --nproc-per-node $((ranks / ${#hosts[@]})) --max-restarts 0"
for host in "${hosts[@]}"; do
    rendezvous="--rdzv-backend c10d --rdzv-endpoint ${hosts[0]}:$port --rdzv-id $port --local-addr $host"
    ssh "$host" "cd ${PWD@Q} && $connected $agent $rendezvous --no-python $words" &
done
for _ in "${hosts[@]}"; do
    wait -n || exit $?
done
