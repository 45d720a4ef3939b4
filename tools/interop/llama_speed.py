"""Decoding with ddl and with llama.cpp (PyPI's xllamacpp), in turns on one machine, by hand:

    python tools/interop/llama_speed.py build/release/ddl BASELINE_MODEL [ROUNDS]

BASELINE_MODEL: a model with the additive rule in the sizes of the preset small; what it learned does not matter. Every round runs each
program once per format; the best of the rounds counts. Use an idle machine. DDL_THREADS counts for both.
"""

import json
import os
import subprocess
import sys
import tempfile

import xllamacpp

program, model, *rest = sys.argv[1:]
rounds = int(rest[0]) if rest else 3
THREADS = int(os.environ.get("DDL_THREADS", os.cpu_count()))
NEW_TOKENS, PROMPT = 64, 512
# Our format, and llama.cpp's of the same size.
PAIRS = {"f32": "f32", "bf16": "bf16", "q8": "q8_0"}


class Llama:
    def __init__(self, path):
        params = xllamacpp.CommonParams()
        params.model.path = path
        params.n_ctx = 1024
        params.n_parallel = 1
        params.verbosity = -1
        params.cpuparams.n_threads = THREADS
        params.cpuparams_batch.n_threads = THREADS
        self.server = xllamacpp.Server(params)

    def timings(self, tokens, new):
        answer = self.server.handle_completions(
            {"prompt": tokens, "max_tokens": new, "temperature": 0, "ignore_eos": True, "cache_prompt": False}
        )
        answer = answer if isinstance(answer, dict) else json.loads(answer)
        if "timings" not in answer:
            sys.exit(f"llama.cpp answered {answer}")
        return answer["timings"]


def ours(weights):
    run = [program, "bench", "decode", "--preset", "small", "--residual", "baseline", "--precision", "f32", "--weights", weights, "--batch", "1", "--rounds", "1", "--json"]
    record = json.loads(subprocess.run(run, capture_output=True, text=True, check=True).stdout.splitlines()[-1])
    return record["steps"][0]["tokens_per_s"], record["prefill_tokens_per_s"]


with tempfile.TemporaryDirectory() as work:
    llamas = {}
    for name, kind in PAIRS.items():
        path = f"{work}/{kind}.gguf"
        subprocess.run([program, "export", model, "--layout", "gguf", "--type", kind, "--out", path], check=True, capture_output=True)
        llamas[name] = Llama(path)
    best = {name: [0, 0, 0, 0] for name in PAIRS}  # ours: step, prompt; llama.cpp: step, prompt
    for _ in range(rounds):
        for name in PAIRS:
            step = llamas[name].timings([1] * 64, NEW_TOKENS)["predicted_per_second"]
            prompt = llamas[name].timings(list(range(1, PROMPT + 1)), 1)["prompt_per_second"]
            best[name] = [max(a, b) for a, b in zip(best[name], [*ours(name), step, prompt])]

print(f"{THREADS} threads, best of {rounds} rounds, tokens/s")
print(f"{'weights':8} {'one sequence: ours':>20} {'llama.cpp':>10} {'ratio':>6} {'prompt of 512: ours':>22} {'llama.cpp':>10} {'ratio':>6}")
for name, (step, prompt, llama_step, llama_prompt) in best.items():
    print(f"{name:8} {step:20.0f} {llama_step:10.0f} {step / llama_step:6.2f} {prompt:22.0f} {llama_prompt:10.0f} {prompt / llama_prompt:6.2f}")
