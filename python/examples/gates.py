"""A notebook's worth of Deep Delta: train two residual rules on the same stories, compare them, look at the gates.

    ./ddl data generate stories --docs 2000 --out stories.jsonl
    ./ddl tokenizer train stories.jsonl --vocab 512 --out tokenizer
    ./ddl data prepare stories.jsonl --tokenizer tokenizer --out data
    python python/examples/gates.py data
"""

import sys
import tempfile

import numpy as np

import deepdelta

data = sys.argv[1]
folder = tempfile.mkdtemp()
sizes = {"model": {"layers": 2, "width": 64, "heads": 2, "context": 128}, "train": {"steps": 60, "batch": 4, "lr": 0.01}}

# Train both on the same batches, and compare what was recorded.
runs = {
    rule: deepdelta.train({"model.residual": rule, **sizes}, data, f"{folder}/{rule}") for rule in ("baseline", "ddl-cc")
}
for rule, run in runs.items():
    loss = run.metrics(["loss"])["loss"]
    print(f"{rule:10} loss {loss[0]:.3f} -> {loss[-5:].mean():.3f}")

# What the gates do to a sentence: rows are sublayers, columns tokens.
model = runs["ddl-cc"].model()
tokens = model.encode("Once upon a time, there was a little girl named Sue.")
trace = model.trace(tokens)
print("tokens    " + " ".join(f"{model.decode([t]):>6.6}" for t in tokens[1:13]).replace("\n", " "))
for s, gates in enumerate(trace["gate"]):
    print(f"{s // 2} {'attention' if s % 2 == 0 else 'mlp':9}" + " ".join(f"{g:6.2f}" for g in gates[1:13]))

# How far each write leaves the readout from its target: |1 - gate| |target - readout|.
gap = np.abs(trace["target"] - trace["readout"]).mean(-1)
left = np.abs(1 - trace["gate"]) * gap
print("mean discrepancy before and after a write, by sublayer:")
for s in range(model.sublayers):
    print(f"  {s}  {gap[s].mean():.3f} -> {left[s].mean():.3f}")
print(model.generate("Once upon a time", max_new_tokens=30, temperature=0))
