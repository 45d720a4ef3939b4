#!/bin/bash
# Ranks as processes, through c10d: ranks.sh PROGRAM CASE. Prints what it measured; the last line says whether the case passed.
set -u
program=$1 case=$2
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export OMP_WAIT_POLICY=passive DDL_CONNECT_SECONDS=${DDL_CONNECT_SECONDS:-120}
fail() { echo "FAILED: $*"; exit 1; }

data() {
  "$program" data generate overwrite --docs 400 --out text.jsonl >/dev/null 2>&1 || fail "data generate"
  "$program" data prepare text.jsonl --tokenizer bytes --out data --val-fraction 0.1 >/dev/null 2>&1 || fail "data prepare"
}
# f32: in bf16 a sum that differs in its last bit may round a weight to the other neighbour, which is 0.4% away.
small="--data data --set model.precision=f32 --set model.layers=2 --set model.width=64 --set model.heads=2 --set model.context=64 --set train.warmup=5
  --set log.floor=false --set eval.every=20 --set log.screen_seconds=1000"
steps=${STEPS:-50}
train() { # OUT, then options; the environment may say ranks
  out=$1
  shift
  # shellcheck disable=SC2086
  DDL_THREADS=1 "$program" train $small --out "$out" --set train.steps="$steps" "$@" >"$out.log" 2>&1
}
losses() { # "STEP LOSS" of every step
  awk '/"event":"step"/ {
    match($0, /"loss":[^,}]*/); loss = substr($0, RSTART + 7, RLENGTH - 7)
    match($0, /"step":[0-9]+/); print substr($0, RSTART + 7, RLENGTH - 7), loss }' "$1/metrics.jsonl"
}
# The largest difference of two runs' losses.
difference() {
  losses "$1" >a.txt && losses "$2" >b.txt
  [ "$(wc -l <a.txt)" = "$steps" ] && [ "$(wc -l <b.txt)" = "$steps" ] || { echo 1; return; }
  paste a.txt b.txt | awk '{ d = $2 - $4; if (d < 0) d = -d; if (d > m) m = d } END { printf "%.3g", m }'
}
below() { awk -v x="$1" -v limit="$2" 'BEGIN { exit !(x < limit) }'; }
weights() { ls -d "$1"/checkpoints/step-* | tail -1 | xargs -I{} sha256sum {}/model.safetensors {}/optimizer.safetensors | cut -d' ' -f1 | tr '\n' ' '; }
by_environment() { # OUT, options
  for rank in 0 1; do
    RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port train "$@" &
    [ $rank = 0 ] && first=$! || second=$!
  done
  wait "$first" && wait "$second"
}
# A run on two ranks in the background, once it has made a step. Sets job, launcher and rank_1.
start_long() {
  steps=100000 train "$1" --ranks 2 --set train.batch=4 --set train.accumulate=2 &
  job=$!
  for _ in $(seq 600); do grep -q '"event":"step"' "$1/metrics.jsonl" 2>/dev/null && break; sleep 0.1; done
  launcher=$(pgrep -P "$job" | head -1)
  rank_1=$(pgrep -n -P "$launcher")
  [ -n "$rank_1" ] || fail "$(tail -3 "$1.log")"
}
port=$((20000 + RANDOM % 20000))

data
case "$case" in
  losses) # two ranks with half the batch have the losses of one rank
    for rule in ddl-cc ddl-tc baseline; do
      train one-$rule --set model.residual=$rule --set train.batch=8 || fail "$(tail -3 one-$rule.log)"
      train two-$rule --ranks 2 --set model.residual=$rule --set train.batch=4 --set train.accumulate=2 || fail "$(tail -3 two-$rule.log)"
      d=$(difference one-$rule two-$rule)
      echo "$rule: 2 ranks x 4 against 1 rank x 8, $steps steps: losses within $d"
      below "$d" 1e-6 || fail "$d"
    done
    ;;
  launchers) # the same bits, whoever starts the ranks
    half="--set train.batch=4 --set train.accumulate=2"
    # shellcheck disable=SC2086
    {
      train local --ranks 2 $half || fail "$(tail -3 local.log)"
      by_environment environment $half || fail "$(tail -3 environment.log)"
      [ "$(weights local)" = "$(weights environment)" ] || fail "plain environment: other bits"
      echo "plain environment: the bits of --ranks 2"
      if command -v mpirun >/dev/null; then
        export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
        DDL_THREADS=1 mpirun --oversubscribe --bind-to none -n 2 "$program" train $small --out mpi --set train.steps="$steps" $half >mpi.log 2>&1 ||
          fail "$(tail -3 mpi.log)"
        [ "$(weights local)" = "$(weights mpi)" ] || fail "mpirun: other bits"
        echo "mpirun: the bits of --ranks 2"
      else
        echo "mpirun: not on this machine"
      fi
      if command -v torchrun >/dev/null; then
        DDL_THREADS=1 torchrun --no-python --nproc-per-node 2 --master-port $port "$program" train $small --out torchrun --set train.steps="$steps" $half >torchrun.log 2>&1 ||
          fail "$(tail -3 torchrun.log)"
        [ "$(weights local)" = "$(weights torchrun)" ] || fail "torchrun: other bits"
        echo "torchrun: the bits of --ranks 2"
      else
        echo "torchrun: not on this machine"
      fi
      if command -v srun >/dev/null && sinfo >/dev/null 2>&1; then
        DDL_THREADS=1 srun -n 2 --overcommit "$program" train $small --out srun --set train.steps="$steps" $half >srun.log 2>&1 ||
          fail "$(tail -3 srun.log)"
        [ "$(weights local)" = "$(weights srun)" ] || fail "srun: other bits"
        echo "srun: the bits of --ranks 2"
      else
        echo "srun: no Slurm here"
      fi
    }
    ;;
  resume) # 1, 2, 1 ranks, with the optimizer's state shared out and not
    keep="--set checkpoint.every_steps=5 --set checkpoint.keep_last=100 --set checkpoint.keep_best=0 --set train.batch=4 --set train.accumulate=2"
    # shellcheck disable=SC2086
    train whole $keep || fail "$(tail -3 whole.log)"
    for zero in false true; do
      run=parts-$zero
      # shellcheck disable=SC2086
      train $run $keep --set train.zero=$zero || fail "$(tail -3 $run.log)"
      cut() { for c in $run/checkpoints/step-*; do [ "$(echo "$c" | sed 's/.*step-0*//')" -le "$1" ] || rm -r "$c"; done; }
      cut $((steps / 3 / 5 * 5))
      DDL_THREADS=1 "$program" train --resume --out $run --ranks 2 >$run.log 2>&1 || fail "$(tail -3 $run.log)"
      cut $((steps * 2 / 3 / 5 * 5))
      DDL_THREADS=1 "$program" train --resume --out $run >$run.log 2>&1 || fail "$(tail -3 $run.log)"
      d=$(difference whole $run)
      echo "1, 2, 1 ranks, zero $zero: losses within $d"
      below "$d" 1e-6 || fail "$d"
    done
    ;;
  killed) # a rank that is killed is an error of the other within seconds, and the run goes on from there
    start_long lost
    kill -9 "$rank_1" || fail "no rank to kill"
    begin=$(date +%s.%N)
    wait "$job"
    code=$?
    took=$(echo "$(date +%s.%N) $begin" | awk '{printf "%.1f", $1 - $2}')
    echo "rank 1 was killed: exit $code after $took s: $(grep -m1 -i 'lost the others' lost.log)"
    below "$took" 30 || fail "took $took s"
    [ $code -ne 0 ] || fail "exit 0"
    grep -q "The run is saved at step" lost.log || fail "$(tail -3 lost.log)"
    ;;
  slow) # a rank that is held up is named
    start_long slow
    held='"slow_rank":1,"slow_rank_s":[1-9][0-9.]*' # seconds; what is slow by chance takes milliseconds
    for _ in $(seq 10); do # a rank that is held up while it waits for the other is not slow
      kill -STOP "$rank_1" && sleep 2 && kill -CONT "$rank_1"
      for _ in $(seq 20); do grep -q "$held" slow/metrics.jsonl && break 2; sleep 0.1; done
    done
    kill -TERM "$launcher"
    wait "$job"
    grep -m1 -o "$held" slow/metrics.jsonl || fail "rank 1 is not named"
    grep -q "stopped at step .* and saved" slow.log || fail "$(tail -3 slow.log)"
    ;;
  stopped) # a signal to any rank stops all of them after the step, and the run is saved
    start_long stopped
    kill -TERM "$rank_1"
    for _ in $(seq 300); do kill -0 "$job" 2>/dev/null || break; sleep 0.1; done
    if kill -0 "$job" 2>/dev/null; then
      kill -9 "$launcher" $(pgrep -P "$launcher")
      fail "the run goes on"
    fi
    wait "$job"
    code=$?
    echo "rank 1 was told to stop: exit $code: $(grep -m1 "stopped at step" stopped.log)"
    [ $code = 143 ] || fail "exit $code: $(tail -8 stopped.log)"
    grep -q "stopped at step .* and saved" stopped.log || fail "$(tail -3 stopped.log)"
    ;;
  restarts) # under torchrun, ranks killed at random moments: every run completes, with the losses of the undisturbed one
    command -v torchrun >/dev/null || { echo "torchrun: not on this machine"; echo "passed: $case"; exit 0; }
    half="--set train.batch=4 --set train.accumulate=2 --set checkpoint.every_steps=10"
    # shellcheck disable=SC2086
    train whole --ranks 2 $half || fail "$(tail -3 whole.log)"
    killed=0 attempt=0
    while [ $killed -lt "${KILLS:-20}" ]; do
      attempt=$((attempt + 1))
      [ $attempt -le $((3 * ${KILLS:-20})) ] || fail "only $killed ranks killed in $attempt attempts: STEPS is too small or LONGEST too large"
      # shellcheck disable=SC2086
      DDL_THREADS=1 torchrun --no-python --nproc-per-node 2 --max-restarts 3 --monitor-interval 0.1 --master-port $((port + attempt)) \
        "$program" train $small --out "run$attempt" --set train.steps="$steps" $half >"run$attempt.log" 2>&1 &
      job=$!
      for _ in $(seq 600); do pgrep -P $job -f "$program" >/dev/null && break; sleep 0.1; done
      sleep "$(awk -v s="$RANDOM" -v longest="${LONGEST:-3}" 'BEGIN { printf "%.2f", s / 32768 * longest }')"
      victim=$(pgrep -P $job -f "$program" | shuf -n 1)
      # A run that has ended already is no test of anything.
      [ -n "$victim" ] && kill -9 "$victim" && killed=$((killed + 1))
      wait $job || fail "attempt $attempt: $(tail -3 "run$attempt.log")"
      d=$(difference whole "run$attempt")
      echo "attempt $attempt: killed ${victim:-nobody}, resumed $(grep -c '"event":"resume"' "run$attempt/metrics.jsonl") times, losses within $d"
      below "$d" 1e-6 || fail "$d"
    done
    ;;
  refused) # one clear error each, and no hang
    half="--set train.batch=4 --set train.accumulate=2"
    refused() { # what must be said; the rest is a command
      said=$1
      shift
      begin=$SECONDS
      timeout 60 "$@" >refused.log 2>&1
      code=$?
      [ $code = 2 ] || fail "exit $code, expected 2: $(tail -3 refused.log)"
      grep -q "$said" refused.log || fail "expected '$said': $(cat refused.log)"
      [ $((SECONDS - begin)) -lt 60 ] || fail "took $((SECONDS - begin)) s: $said"
      echo "exit 2: $(grep -m1 "$said" refused.log)"
    }
    # shellcheck disable=SC2086
    {
      refused "expected 1 or 2 ranks" "$program" train $small --out r1 --ranks 3 $half
      refused "not reached at 127.0.0.1" env DDL_CONNECT_SECONDS=2 RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=1 "$program" train $small --out r2 $half
      refused "missing: rank 1" env DDL_CONNECT_SECONDS=2 RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$program" train $small --out r3 $half
      refused "RANK: expected" env RANK=2 WORLD_SIZE=2 MASTER_PORT=$port "$program" train $small --out r4 $half
      # Processes that were not started together: one rank too many, and ranks that count differently.
      (for rank in 0 1; do DDL_CONNECT_SECONDS=4 RANK=$rank WORLD_SIZE=3 MASTER_PORT=$((port + 1)) "$program" train $small --out r6 $half >/dev/null 2>&1 & done; wait) &
      sleep 2
      refused "two processes say that they are rank 1" env DDL_CONNECT_SECONDS=4 RANK=1 WORLD_SIZE=3 MASTER_PORT=$((port + 1)) "$program" train $small --out r6 $half
      DDL_CONNECT_SECONDS=4 RANK=1 WORLD_SIZE=3 MASTER_PORT=$((port + 2)) "$program" train $small --out r7 $half >/dev/null 2>&1 &
      refused "rank 1 counts 3 ranks, rank 0 counts 2" env DDL_CONNECT_SECONDS=4 RANK=0 WORLD_SIZE=2 MASTER_PORT=$((port + 2)) "$program" train $small --out r7 $half
      wait
      refused "cannot listen" env DDL_CONNECT_SECONDS=2 RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=1 setpriv --bounding-set -all --inh-caps -all --reuid 65534 --clear-groups "$program" train $small --out r5 $half
    }
    ;;
  *) fail "no case '$case'" ;;
esac
echo "passed: $case"
