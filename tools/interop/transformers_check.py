"""Checks `ddl export --layout transformers` with a real transformers, by hand:

    python tools/interop/transformers_check.py build/release/ddl RUN...

For every run: the log-probabilities of all tokens against `ddl score`, greedy text against `ddl generate`, decoding with
and without the cache, two sequences of different length side by side, a few steps of the Trainer, and the way back through
`ddl import`. For the baseline, the same weights as Qwen3 must differ.

Log-probabilities may differ by 1e-5 or, where that is more, by sqrt(width) 2^-24 of the largest: what f32 rounds numbers of that size to, since the sum of
`width` products has that many roundings, which go both ways. The same holds for either program against transformers in f64. A matrix whose weights are off by 0.1%, at random, must be seen.
"""

import json
import math
import os
import subprocess
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_MODULES_CACHE", tempfile.mkdtemp())

import torch
import transformers
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PrinterCallback, Trainer, TrainingArguments

PROMPT = "Once upon a time"
NEW_TOKENS = 40
F32 = ("--weights", "f32", "--precision", "f32")  # auto may be bf16


def ddl(*arguments):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"ddl {arguments}: {done.stderr}")
    return done.stdout


def load(folder, dtype=torch.float32):
    return AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True, dtype=dtype).eval()


def log_probabilities(model, ids):
    """[T-1, V]: the distribution behind every token but the last."""
    with torch.no_grad():
        return torch.log_softmax(model(ids).logits.double(), -1)[0, :-1]


def in_f64(folder, ids):
    """The same, exact but for its last digits. Norms of transformers compute in f32 whatever the weights are, so `float` means double meanwhile."""
    to_float, zeros = torch.Tensor.float, torch.get_default_dtype()
    to = torch.Tensor.to
    f32_as_f64 = lambda each: torch.float64 if each is torch.float32 else each
    torch.Tensor.float = torch.Tensor.double
    torch.Tensor.to = lambda self, *a, **k: to(self, *map(f32_as_f64, a), **{key: f32_as_f64(each) for key, each in k.items()})
    torch.set_default_dtype(torch.float64)
    try:
        return log_probabilities(load(folder, torch.float64), ids)
    finally:
        torch.Tensor.float, torch.Tensor.to = to_float, to
        torch.set_default_dtype(zeros)


def largest_difference(a, b):
    return (a - b).abs().max().item()


def limit(log_p, width):
    return max(1e-5, math.sqrt(width) * 2.0**-24 * log_p.abs().max().item())


def slightly_off(folder, ids):
    """The second control: an error of 0.1% in one matrix."""
    model = load(folder)
    torch.manual_seed(1)
    for name, weight in model.named_parameters():
        if name.endswith(("h.0.mlp.c_proj.weight", "layers.0.mlp.down_proj.weight")):
            weight.data *= 1 + 1e-3 * torch.randn_like(weight)
    return log_probabilities(model, ids)


def our_log_probabilities(run, ids, vocab, work):
    """[T-1, V] by `ddl score`: the distribution behind every token but the last."""
    path = f"{work}/ids.txt"
    with open(path, "w") as file:
        file.write(" ".join(map(str, ids)))
    rows = []
    for line in ddl("score", run, "--tokens", path, "--json", "--top", vocab, "--precision", "f32").splitlines():
        record = json.loads(line)
        if record["event"] == "token":
            row = torch.empty(vocab, dtype=torch.float64)
            for each in record["best"]:
                row[each["token"]] = each["log_probability"]
            rows.append(row)
    return torch.stack(rows)


def greedy(model, ids, **more):
    mask = torch.ones_like(ids)
    with torch.no_grad():
        return model.generate(ids, attention_mask=mask, max_new_tokens=NEW_TOKENS, do_sample=False, pad_token_id=0, **more)


def as_qwen3(folder, ids):
    """The negative control: Qwen3 normalises queries and keys before it rotates them."""
    config = json.load(open(f"{folder}/config.json"))
    renamed = {
        name.replace("query_layernorm", "q_norm").replace("key_layernorm", "k_norm"): tensor
        for name, tensor in load_file(f"{folder}/model.safetensors").items()
    }
    for key in ("model_type", "architectures", "pretraining_tp", "torch_dtype"):
        config.pop(key, None)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model("qwen3", **config)).eval()
    missing, unexpected = model.load_state_dict(renamed, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    model.tie_weights()
    with torch.no_grad():
        return torch.log_softmax(model(ids).logits.double(), -1)[0]


def padded(model, ids, vocab):
    """The largest difference that padding in front makes to a sequence's distribution."""
    short = ids[:, : ids.shape[1] // 2]
    pad = ids.shape[1] - short.shape[1]
    both = torch.cat([torch.cat([torch.zeros(1, pad, dtype=ids.dtype), short], 1), ids])
    mask = torch.ones_like(both)
    mask[0, :pad] = 0
    with torch.no_grad():
        alone = torch.log_softmax(model(short).logits.double(), -1)[0]
        positions = (mask.cumsum(1) - 1).clamp(min=0)  # as generate() gives them
        together = torch.log_softmax(model(both, attention_mask=mask, position_ids=positions).logits.double(), -1)[0, pad:]
    return (alone - together).abs().max().item()


def fine_tune(folder, ids, work):
    """A few steps with the Trainer and gradient checkpointing; returns the folder and the losses."""
    model = load(folder).train()
    rows = [{"input_ids": ids[0], "labels": ids[0]} for _ in range(8)]
    out = f"{work}/tuned"
    arguments = TrainingArguments(
        output_dir=f"{work}/trainer",
        max_steps=4,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        learning_rate=1e-3,
        logging_steps=1,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=rows)
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    model.save_pretrained(out)
    AutoTokenizer.from_pretrained(folder, trust_remote_code=True).save_pretrained(out)
    return out, losses, model.eval()


def check(run):
    with tempfile.TemporaryDirectory() as work:
        folder = f"{work}/there"
        ddl("export", run, "--layout", "transformers", "--out", folder)
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
        model = load(folder)
        vocab = model.config.vocab_size
        ids = [tokenizer.eos_token_id] + tokenizer(PROMPT)["input_ids"]
        x = torch.tensor([ids])
        text = greedy(model, x, use_cache=True)
        same_text = tokenizer.decode(text[0][1:], skip_special_tokens=True) == ddl(
            "generate", run, "--prompt", PROMPT, "--temperature", 0, "--max-new-tokens", NEW_TOKENS, *F32
        ).removesuffix("\n")
        cached = torch.equal(text, greedy(model, x, use_cache=False))
        beams = greedy(model, x, num_beams=3).shape[1] > x.shape[1]
        theirs = log_probabilities(model, text)
        ours = our_log_probabilities(run, text[0].tolist(), vocab, work)
        exact = in_f64(folder, text)
        may_differ = limit(exact, model.config.hidden_size)
        difference, ours_off, theirs_off = largest_difference(theirs, ours), largest_difference(ours, exact), largest_difference(theirs, exact)
        off = largest_difference(slightly_off(folder, text), ours)
        control = None
        if type(model).__name__ == "HunYuanDenseV1ForCausalLM":
            control = largest_difference(as_qwen3(folder, text)[:-1], ours)
        ddl("import", folder, "--out", f"{work}/back")
        ddl("export", run, "--out", f"{work}/own")
        bits = lambda name: open(f"{work}/{name}/model.safetensors", "rb").read()
        # muP's scale becomes part of HunYuan's final norm: the same model, but not the same bits.
        folded = control is not None and json.load(open(f"{work}/own/config.json"))["ddl"]["mup"]
        same_bits = bits("back") == bits("own")
        pad = padded(model, text, vocab)
        tuned, losses, model = fine_tune(folder, text, work)
        ddl("import", tuned, "--out", f"{work}/tuned-back")
        tuned_theirs = log_probabilities(model, text)
        tuned_difference = largest_difference(tuned_theirs, our_log_probabilities(f"{work}/tuned-back", text[0].tolist(), vocab, work))
        tuned_may_differ = limit(tuned_theirs, model.config.hidden_size)
        # The way back is the same bits: what ddl exports again is what the Trainer saved.
        ddl("export", f"{work}/tuned-back", "--layout", "transformers", "--out", f"{work}/again")
        saved, again = load_file(f"{tuned}/model.safetensors"), load_file(f"{work}/again/model.safetensors")
        tuned_bits = all(torch.equal(saved[name], again[name]) for name in again)
    ok = (
        same_text and cached and beams and max(difference, ours_off, theirs_off) <= may_differ and pad < 1e-4 and tuned_bits
        and (same_bits or folded) and losses[-1] < losses[0] and tuned_difference <= tuned_may_differ
        and off > may_differ and (control is None or control > 1e-3)
    )
    print(
        f"{'ok  ' if ok else 'FAIL'} {os.path.basename(run):16} {type(model).__name__:26} log p {difference:.1e} of {may_differ:.1e}"
        f" (to {exact.abs().max():.1f}; ddl {ours_off:.1e}, transformers {theirs_off:.1e} from f64)"
        f"  text {same_text}  cache {cached}  padding {pad:.0e}  back {same_bits}"
        f"  tuned {losses[0]:.3f} -> {losses[-1]:.3f}, log p {tuned_difference:.1e} of {tuned_may_differ:.1e}, bits {tuned_bits}"
        f"  0.1% off {off:.0e}" + ("" if control is None else f"  as Qwen3 {control:.2f}"),
        flush=True,
    )
    return ok


program, *runs = sys.argv[1:]
torch.set_num_threads(1)
print(f"transformers {transformers.__version__}, torch {torch.__version__}")
sys.exit(0 if all([check(run) for run in runs]) else 1)
