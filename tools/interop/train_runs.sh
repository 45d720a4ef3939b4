#!/usr/bin/env bash
# The small runs that transformers_check.py and gguf_check.py look at: all residual rules and variants of them.
#
#   tools/interop/train_runs.sh build/release/ddl DIR SEED
#
# 40 steps at a high rate, so that nothing is at its starting value. DIR/runs has all of them, DIR/text.jsonl what they were trained on.
set -euo pipefail
program=$(realpath "$1") seed=$3
mkdir -p "$2" && cd "$2"
[ -e text.jsonl ] || "$program" data generate stories --docs 3000 --seed "$seed" --out text.jsonl
[ -d tokenizer ] || "$program" tokenizer train text.jsonl --vocab 512 --out tokenizer
[ -d data ] || "$program" data prepare text.jsonl --tokenizer tokenizer --out data

run() { # NAME RULE [SETTING...]
  local name=$1 rule=$2 sets=() each
  shift 2
  [ -d "runs/$name" ] && return
  for each in model.layers=2 model.width=48 model.heads=4 model.context=96 "train.seed=$seed" train.steps=40 train.batch=8 train.warmup=5 \
    train.lr=0.01 log.floor=false "$@"; do
    sets+=(--set "$each")
  done
  "$program" train --data data --out "runs/$name" --set "model.residual=$rule" "${sets[@]}" >/dev/null
  echo "runs/$name"
}

for rule in baseline ddl-dv1 ddl-tc-noec ddl-cc-noec ddl-tc ddl-cc wo-dv1 wo-tc wo-cc ddl-ew-dv1 ddl-ew-cc norm-write ihc decay-x0 highway hc hc-static \
  mhc attnres attnres-block; do
  run $rule $rule
done
run ddl-tc-block ddl-tc model.compressor=block
run ddl-cc-block ddl-cc model.compressor=block model.gate=two-layer model.value=biased
run ddl-cc-conv ddl-cc model.channel_compressor=convolution model.channel_kernel=3 model.value=linear model.norm_eps=1e-4
run ddl-ew-two ddl-ew-cc model.gate=two-layer model.mup=true
run baseline-mup baseline model.mup=true model.rope_base=5000 model.norm_eps=1e-4 # an epsilon that HunYuan cannot express
run baseline-scaled baseline model.mup=true model.rope_base=5000                   # 1024/48 is no power of two
run baseline-64 baseline model.width=64
run baseline-mup-64 baseline model.width=64 model.mup=true
run baseline-96 baseline model.width=96 model.mlp=256 # all matrices in whole blocks of 32
