#!/bin/bash
# The torch engine by the program itself: engine.sh PROGRAM CASE. Prints what it measured; the last line says whether the case passed.
set -u
program=$(realpath "$1") case=$2
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export OMP_WAIT_POLICY=passive DDL_THREADS=1
fail() { echo "FAILED: $*"; exit 1; }

steps=${STEPS:-40}
"$program" data generate overwrite --docs 400 --out text.jsonl >/dev/null 2>&1 || fail "data generate"
"$program" data prepare text.jsonl --tokenizer bytes --out data --val-fraction 0.1 >/dev/null 2>&1 || fail "data prepare"
small="--data data --set model.layers=2 --set model.width=64 --set model.heads=2 --set model.context=64 --set model.precision=f32
  --set train.batch=4 --set train.warmup=5 --set train.steps=$steps --set log.floor=false --set eval.every=10 --set log.screen_seconds=1000
  --set checkpoint.every_steps=10 --set checkpoint.keep_last=100 --set checkpoint.keep_best=0"
train() { # OUT, then options
  out=$1
  shift
  # shellcheck disable=SC2086
  "$program" train $small --out "$out" "$@" >"$out.log" 2>&1 || fail "$(tail -3 "$out.log")"
}
resume() { # OUT, then options
  "$program" train --resume --out "$@" >"$1.log" 2>&1 || fail "$(tail -3 "$1.log")"
}
drop_after() { # OUT, STEP: the checkpoints of later steps
  for c in "$1"/checkpoints/step-*; do [ "$(echo "$c" | sed 's/.*step-0*//')" -le "$2" ] || rm -r "$c"; done
}
losses() { # "STEP LOSS" of every step
  awk '/"event":"step"/ {
    match($0, /"loss":[^,}]*/); loss = substr($0, RSTART + 7, RLENGTH - 7)
    match($0, /"step":[0-9]+/); print substr($0, RSTART + 7, RLENGTH - 7), loss }' "$1/metrics.jsonl"
}
# The largest difference of two runs' losses; 1 where their steps are not the same.
difference() {
  losses "$1" >a.txt && losses "$2" >b.txt
  [ "$(wc -l <a.txt)" = "$steps" ] && [ "$(wc -l <b.txt)" = "$steps" ] || { echo 1; return; }
  paste a.txt b.txt | awk '{ if ($1 != $3) m = 1; d = $2 - $4; if (d < 0) d = -d; if (d > m) m = d } END { printf "%.3g", m }'
}
below() { awk -v x="$1" -v limit="$2" 'BEGIN { exit !(x < limit) }'; }

case "$case" in
  resume) # native, torch, native: the losses of the uninterrupted run
    for rule in ddl-cc ddl-tc baseline mhc; do
      train whole-$rule --set model.residual=$rule
      cp -r whole-$rule mixed-$rule
      drop_after mixed-$rule $((steps / 4))
      resume mixed-$rule --engine torch --device cpu
      d=$(difference whole-$rule mixed-$rule)
      grep -q "model.engine = 'torch'" mixed-$rule/config.toml || fail "the run does not say that torch computes it"
      drop_after mixed-$rule $((steps * 3 / 4))
      resume mixed-$rule --engine native
      back=$(difference whole-$rule mixed-$rule)
      echo "$rule: native for $((steps / 4)) steps, then torch: losses within $d; native again for the last quarter: within $back"
      below "$d" 1e-5 && below "$back" 1e-5 || fail "$d $back"
      [ "$d" != 0 ] || fail "torch has native's bits: it did not compute"
    done
    ;;
  ranks) # two ranks on torch have the losses of one
    train one --engine torch --device cpu --set train.batch=8
    train two --engine torch --device cpu --ranks 2 --set train.accumulate=2
    d=$(difference one two)
    echo "torch, 2 ranks x 4 against 1 rank x 8: losses within $d"
    below "$d" 1e-6 || fail "$d"
    train zero --engine torch --device cpu --ranks 2 --set train.accumulate=2 --set train.zero=true
    for file in model optimizer; do
      cmp two/checkpoints/step-*$steps/$file.safetensors zero/checkpoints/step-*$steps/$file.safetensors || fail "train.zero: other bits"
    done
    echo "torch, 2 ranks, train.zero: the same bits"
    ;;
  use) # a model trained on torch, used by both engines: the same text and the same numbers
    train run --engine torch --device cpu
    for engine in native torch; do
      for weights in auto f32; do
        "$program" generate run --engine $engine --weights $weights --prompt "a=3 b=7 a?" --max-new-tokens 40 --num 3 --seed 5 >text-$engine-$weights 2>log ||
          fail "$(tail -3 log)"
      done
      "$program" eval run --engine $engine --text text.jsonl --json >eval-$engine 2>log || fail "$(tail -3 log)"
      sed -i -E 's/"(seconds|tokens_per_s|time|elapsed_s|created|date)":[^,}]*//g' eval-$engine
    done
    for weights in auto f32; do
      cmp text-native-$weights text-torch-$weights || fail "generate --weights $weights: another text"
    done
    cmp eval-native eval-torch || fail "eval: other numbers: $(cat eval-native eval-torch)"
    [ -s text-torch-f32 ] && grep -q '[0-9]' eval-torch || fail "nothing to compare"
    echo "generate: the same texts; eval: $(head -c 300 eval-torch)"
    ;;
  refused) # one clear line each, and exit 2
    refused() { # what must be said; the rest is a command
      said=$1
      shift
      "$@" >out.log 2>refused.log
      code=$?
      [ $code = 2 ] || fail "exit $code, expected 2: $(tail -3 refused.log)"
      grep -q -- "$said" refused.log || fail "expected '$said': $(cat refused.log)"
      [ "$(wc -l <refused.log)" = 1 ] || fail "more than a line: $(cat refused.log)"
      echo "exit 2: $(cat refused.log)"
    }
    # shellcheck disable=SC2086
    {
      if [ ! -e /dev/nvidia0 ]; then
        refused "no NVIDIA driver" "$program" train $small --out r --device cuda
        refused "no NVIDIA driver" "$program" train $small --out r --device cuda:3 --engine torch
      fi
      refused "expected cpu, cuda, cuda:N" "$program" train $small --out r --device gpu
      refused "computes on the CPU" "$program" train $small --out r --device cuda --engine native
      # The part is not there: a program without the library beside it.
      train run
      mkdir alone && cp "$program" alone/ddl
      refused "./ddl setup torch" alone/ddl train $small --out r --engine torch
      refused "./ddl setup torch" alone/ddl train $small --out r --device cpu
      refused "./ddl setup torch" alone/ddl generate run --engine torch --prompt "a=3"
      refused "./ddl setup torch" alone/ddl eval run --engine torch --text text.jsonl
      [ -z "$(ls r 2>/dev/null)" ] || fail "a refused run left something: $(ls r)"
    }
    ;;
  *) fail "no case '$case'" ;;
esac
echo "passed: $case"
