"""How far small weights move the residual stream at every depth, by hand (needs transformers):

    python tools/interop/state_error.py build/release/ddl RUN TEXT [TOKENS]

For bf16, q8 and q4: the model with rounded weights against the model itself, both in f32 on the same tokens. The state is compared in
front of every sublayer of a delta rule, and in front of every block of the baseline: |X' - X| / |X| over all tokens. The rounding of
activations inside q8 and q4 products is not part of it.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import torch
from transformers import AutoModelForCausalLM

program, run, text, *rest = sys.argv[1:]
count = int(rest[0]) if rest else 1024


def ddl(*arguments):
    done = subprocess.run([program, *arguments], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout


def states(folder, token_BT):
    """The state in front of every sublayer (delta rules) or block (baseline), and what the last one leaves."""
    model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True, dtype=torch.float32).eval()
    kinds = {"DeltaSublayer", "HunYuanDenseV1DecoderLayer"}
    seen = []
    for module in model.modules():
        if type(module).__name__ in kinds:
            module.register_forward_hook(
                lambda _, given, named, left: seen.append((given[0] if given else named["hidden_states"], left)),
                with_kwargs=True,
            )
    with torch.no_grad():
        model(token_BT)
    last = seen[-1][1]
    return [given for given, _ in seen] + [last[0] if isinstance(last, tuple) else last]


with tempfile.TemporaryDirectory() as work:
    start = pathlib.Path(work, "text.txt")
    start.write_text(pathlib.Path(text).read_text()[: 10 * count])
    rows = [json.loads(line) for line in ddl("score", run, "--text", str(start), "--json").splitlines()]
    ids = [row["token"] for row in rows if "token" in row][:count]
    ddl("export", run, "--layout", "transformers", "--out", f"{work}/f32")
    context = json.loads(pathlib.Path(f"{work}/f32/config.json").read_text())["max_position_embeddings"]
    token_BT = torch.tensor(ids[: len(ids) // context * context]).view(-1, context)
    exact = states(f"{work}/f32", token_BT)
    print(f"{run}: {token_BT.numel()} tokens")
    for weights in ("bf16", "q8", "q4"):
        ddl("quantize", run, "--weights", weights, "--out", f"{work}/{weights}")
        ddl("export", f"{work}/{weights}", "--layout", "transformers", "--out", f"{work}/{weights}-export")
        moved = states(f"{work}/{weights}-export", token_BT)
        errors = [((a - b).norm() / a.norm()).item() for a, b in zip(exact, moved)]
        print(f"{weights:5}", *(f"{error:.4f}" for error in errors))
