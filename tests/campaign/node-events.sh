#!/usr/bin/env bash
# Whatever happens to a node, in whatever order: each seeded sequence ends in the state that it began with.
#
# A fleet of one GPU node with real processes a run; see tests/e2e/node_events_test.cc. Arguments: --slice runs
# one sequence, --runs N others than 20, --seed N replays.
set -euo pipefail
runs=20 seed=1
while [ $# -gt 0 ]; do
  case $1 in
    --slice) runs=1 ;;
    --runs) runs=$2; shift ;;
    --seed) seed=$2; shift ;;
    *) echo "node-events: unknown argument '$1'; there are --slice, --runs N, --seed N" >&2; exit 2 ;;
  esac
  shift
done
export GPUOP_NODE_EVENT_RUNS=$runs GPUOP_NODE_EVENT_SEED=$seed
began=$SECONDS
"$GPUOP_BIN/../tests/e2e_test" --gtest_filter=node_events.any_sequence_ends_in_the_same_state
echo "$runs runs of node events from seed $seed ended in the same state; $((SECONDS - began)) s"
