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
  use) # a model used by both engines: the same texts, the same numbers to rounding
    train run --engine torch --device cpu
    ask="--prompt a=3 --max-new-tokens 40 --weights f32"
    for engine in native torch; do
      # shellcheck disable=SC2086
      "$program" generate run --engine $engine $ask --temperature 0 >greedy-$engine 2>log || fail "$(tail -3 log)"
      # shellcheck disable=SC2086
      "$program" generate run --engine $engine $ask --num 3 --seed 5 >sampled-$engine 2>log || fail "$(tail -3 log)"
      "$program" eval run --engine $engine --text text.jsonl --json >eval-$engine 2>log || fail "$(tail -3 log)"
      head -c 3000 text.jsonl | "$program" score run - --engine $engine --json >score-$engine 2>log || fail "$(tail -3 log)"
    done
    for text in greedy sampled; do
      cmp $text-native $text-torch || fail "generate: another text, $text"
    done
    [ "$(wc -c <sampled-torch)" -gt 60 ] || fail "nothing to compare"
    echo "generate: the same texts"
    numbers() { grep -o "\"$1\":[-0-9.e]*" "$2" | cut -d: -f2; } # KEY, FILE
    apart() { # KEY, WHAT: the largest difference of both engines' numbers, and how many there are
      paste <(numbers "$1" "$2-native") <(numbers "$1" "$2-torch") |
        awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > m) m = d } END { printf "%.3g of %d", m, NR }'
    }
    for what in "loss eval" "log_probability score"; do
      # shellcheck disable=SC2086
      d=$(apart $what)
      echo "$what: largest difference $d"
      below "${d% of*}" 1e-5 && [ "${d#*of }" -ge 1 ] || fail "$what: $d"
      [ "${d% of*}" != 0 ] || fail "torch has native's bits: it did not compute"
    done
    # Small weights that are stored are widened, exactly.
    "$program" quantize run --weights q8 --out small >log 2>&1 || fail "$(tail -3 log)"
    for engine in native torch; do
      # shellcheck disable=SC2086
      "$program" generate small --engine $engine $ask --temperature 0 >small-$engine 2>log || fail "$(tail -3 log)"
    done
    cmp small-native small-torch || fail "generate: another text from stored q8 weights"
    echo "stored q8 weights: the same text"
    # A server: the greedy text of the command.
    "$program" serve run --engine torch --device cpu --port 0 --json >serving 2>log &
    server=$!
    trap 'kill $server 2>/dev/null; rm -rf "$work"' EXIT
    for _ in $(seq 100); do grep -q address serving && break || sleep 0.1; done
    port=$(grep -o '"address":"[^"]*"' serving | grep -o '[0-9]*"$' | tr -d '"')
    body='{"prompt": "a=3", "max_tokens": 40, "temperature": 0}'
    for _ in $(seq 100); do # until the model is loaded
      exec 3<>"/dev/tcp/127.0.0.1/$port" || fail "no server: $(cat log)"
      printf 'POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:%s\r\nContent-Type: application/json\r\nContent-Length: %s\r\nConnection: close\r\n\r\n%s' \
        "$port" "${#body}" "$body" >&3
      answer=$(cat <&3)
      exec 3<&-
      case "$answer" in *'"text"'*) break ;; *) sleep 0.1 ;; esac
    done
    said=$(echo "$answer" | grep -o '"text":"[^"]*"' | cut -d'"' -f4)
    [ -n "$said" ] && grep -qF -- "a=3$(printf '%b' "$said" | head -1)" greedy-torch || fail "serve: $answer"
    echo "serve: the same text"
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
      train run
      if [ ! -e /dev/nvidia0 ]; then
        refused "no NVIDIA driver" "$program" train $small --out r --device cuda
        refused "no NVIDIA driver" "$program" train $small --out r --device cuda:3 --engine torch
        refused "no NVIDIA driver" "$program" generate run --device cuda --prompt "a=3"
        refused "no NVIDIA driver" "$program" eval run --device cuda --text text.jsonl
        refused "no NVIDIA driver" "$program" score run --device cuda --text text.jsonl
        refused "no NVIDIA driver" timeout 20 "$program" serve run --device cuda --port 0
      fi
      refused "expected cpu, cuda, cuda:N" "$program" train $small --out r --device gpu
      refused "computes on the CPU" "$program" train $small --out r --device cuda --engine native
      refused "would widen them" "$program" generate run --engine torch --weights q8 --prompt "a=3"
      # The part is not there: a program without the library beside it.
      mkdir alone && cp "$program" alone/ddl
      refused "./ddl setup torch" alone/ddl train $small --out r --engine torch
      refused "./ddl setup torch" alone/ddl train $small --out r --device cpu
      refused "./ddl setup torch" alone/ddl generate run --engine torch --prompt "a=3"
      refused "./ddl setup torch" alone/ddl eval run --engine torch --text text.jsonl
      refused "./ddl setup torch" timeout 20 alone/ddl serve run --engine torch --port 0
      [ -z "$(ls r 2>/dev/null)" ] || fail "a refused run left something: $(ls r)"
    }
    ;;
  *) fail "no case '$case'" ;;
esac
echo "passed: $case"
