#!/usr/bin/env python3
"""Trains a tiny model twice under the paper's recipe, in PyTorch and in ddl, and compares.

The PyTorch side is written from the equations of docs/math.md and docs/paper.md, in double precision. Both start
from the same weights, read the same batches, and take the same number of steps (30): AdamW (0.9, 0.95), decay 0.1 on
all but norms, clipping at 1, warm-up from zero, cosine to a twentieth of the peak, muP rates on all but the embedding.
Then every loss and every weight is compared.

    python3 -m venv venv && venv/bin/pip install torch numpy safetensors
    venv/bin/python tools/paper_recipe_check.py --ddl build/release/ddl

The exit code is 1 where a loss or a weight differs by more than --tolerance.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
from safetensors.torch import load_file, save_file

LAYERS, WIDTH, HEADS, VOCAB, CONTEXT, BATCH, BASE_WIDTH = 2, 48, 2, 96, 32, 4, 96
MLP = 8 * WIDTH // 3
CHANNELS, KERNEL, EMBED_KERNEL = 4, 4, 4
K_EPS, NORM_EPS = 1e-5, 1e-5
LR, MIN_LR, WARMUP, DECAY, CLIP = 1e-3, 5e-5, 10, 0.1, 1.0
RULES = ("baseline", "ddl-dv1", "ddl-tc-noec", "ddl-cc-noec", "ddl-tc", "ddl-cc")


def starting_weights(rule, seed):
    """Names and shapes of the released code; starting values of its authors."""
    generator = torch.Generator().manual_seed(seed)

    def normal(shape, std):
        return torch.randn(shape, generator=generator, dtype=torch.float32) * std

    std = 0.5 / math.sqrt(WIDTH)
    w = {"transformer.wte.weight": normal((VOCAB, WIDTH), 0.02), "ln_f.weight": torch.ones(WIDTH)}
    expanded = rule not in ("baseline", "ddl-dv1")
    dv = CHANNELS if expanded else 1

    def compressor(name):
        if "-cc" in rule:
            w[name + ".weight"] = normal((WIDTH, KERNEL), std)
        else:
            w[name + ".shortconv.weight"] = normal((WIDTH * dv, KERNEL), std)
        w[name + ".read"] = torch.full((dv,), 1 / dv)

    for layer in range(LAYERS):
        block = f"transformer.h.{layer}."
        for norm in ("ln_1", "ln_2"):
            w[f"{block}{norm}.weight"] = torch.ones(WIDTH)
        for part in ("c_q", "c_k", "c_v"):
            w[f"{block}attn.{part}.weight"] = normal((WIDTH, WIDTH), std)
        w[f"{block}attn.c_proj.weight"] = normal((WIDTH, WIDTH), std / math.sqrt(LAYERS))
        for norm in ("q_rms", "k_rms"):
            w[f"{block}attn.{norm}.weight"] = torch.ones(WIDTH // HEADS)
        for part in ("c_fc1", "c_fc2"):
            w[f"{block}mlp.{part}.weight"] = normal((MLP, WIDTH), std)
        w[f"{block}mlp.c_proj.weight"] = normal((WIDTH, MLP), std / math.sqrt(LAYERS))
        if rule == "baseline":
            continue
        for branch in ("ddl_attn", "ddl_mlp"):
            w[f"{block}{branch}.beta.weight"] = normal((1, WIDTH), std)
            w[f"{block}{branch}.beta.bias"] = torch.zeros(1)  # the gate starts at 1
            w[f"{block}{branch}.v_proj.weight"] = normal((dv, WIDTH), std)
            uniform = torch.rand((dv,), generator=generator, dtype=torch.float32)
            w[f"{block}{branch}.v_proj.bias"] = (2 * uniform - 1) / math.sqrt(WIDTH)
        if expanded:
            compressor(block + "compress")
    if expanded:
        compressor("readout")
        if not rule.endswith("-noec"):
            conv = torch.zeros(WIDTH * dv, 1, EMBED_KERNEL)
            conv[:, 0, -1] = 1
            w["input_embed.conv.weight"] = conv
    return w


def config_json(rule):
    config = {
        "model_type": "nanogpt-pro", "vocab_size": VOCAB, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "hidden_size": WIDTH, "head_dim": WIDTH // HEADS, "block_size": CONTEXT, "use_qk_rmsnorm": True,
        "parameterization": "widthmuP", "hidden_size_base": BASE_WIDTH,
    }
    if rule != "baseline":
        config |= {"ddl_k_eps": K_EPS, "ddl_v_sigmoid": True, "ddl_v_sigmoid_scale": 4.0}
    return config


def rms_norm(x, weight):
    return weight * x / torch.sqrt((x * x).mean(-1, keepdim=True) + NORM_EPS)


def rotate(x):  # (B, T, H, K): the first half of the features pairs with the second
    T, half = x.shape[1], x.shape[3] // 2
    frequency = 10000.0 ** (-2 * torch.arange(half, dtype=x.dtype) / x.shape[3])
    angle = torch.arange(T, dtype=x.dtype)[:, None] * frequency
    cosine, sine = angle.cos()[:, None, :], angle.sin()[:, None, :]
    first, second = x[..., :half], x[..., half:]
    return torch.cat((first * cosine - second * sine, first * sine + second * cosine), -1)


def attention(c, w, name):
    B, T, _ = c.shape
    heads = lambda part: (c @ w[f"{name}.{part}.weight"].T).reshape(B, T, HEADS, WIDTH // HEADS)
    q = rms_norm(rotate(heads("c_q")), w[name + ".q_rms.weight"])
    k = rms_norm(rotate(heads("c_k")), w[name + ".k_rms.weight"])
    scores = torch.einsum("bthk,bshk->bhts", q, k) / math.sqrt(WIDTH // HEADS)
    future = torch.ones(T, T, dtype=torch.bool).triu(1)
    p = scores.masked_fill(future, -math.inf).softmax(-1)
    o = torch.einsum("bhts,bshk->bthk", p, heads("c_v")).reshape(B, T, WIDTH)
    return o @ w[name + ".c_proj.weight"].T


def mlp(c, w, name):
    a, b = c @ w[name + ".c_fc1.weight"].T, c @ w[name + ".c_fc2.weight"].T
    return (a * torch.sigmoid(a) * b) @ w[name + ".c_proj.weight"].T


def earlier(x, tokens):
    """x as it was so many tokens before; zero before the sequence."""
    if tokens == 0:
        return x
    return torch.cat((torch.zeros_like(x[:, :tokens]), x[:, :-tokens]), 1)


def compress(state, w, name):
    """x_in of the state X (B, T, d, dv)."""
    dv, read = state.shape[3], w[name + ".read"]
    if name + ".shortconv.weight" in w:  # over tokens; the last tap is the current one
        taps = w[name + ".shortconv.weight"].reshape(WIDTH, dv, KERNEL)
        mixed = sum(taps[:, :, KERNEL - 1 - s] * earlier(state, s) for s in range(KERNEL))
        return mixed @ read
    taps, pad = w[name + ".weight"], (KERNEL - 1) // 2  # along the channels, zero outside
    x = 0
    for j in range(dv):
        for m in range(KERNEL):
            channel = j - pad + m
            if 0 <= channel < dv:
                x = x + read[j] * taps[:, m] * state[..., channel]
    return x


def loss_of(w, rule, tokens, targets):
    x = w["transformer.wte.weight"][tokens]
    if rule == "baseline":
        state = x
    elif rule == "ddl-dv1":
        state = x[..., None]
    elif rule.endswith("-noec"):
        state = x[..., None].expand(*x.shape, CHANNELS)
    else:
        taps = w["input_embed.conv.weight"].reshape(WIDTH, CHANNELS, EMBED_KERNEL)
        state = sum(taps[:, :, EMBED_KERNEL - 1 - s] * earlier(x, s)[..., None] for s in range(EMBED_KERNEL))

    def read(name):
        if rule == "baseline":
            return state
        return state[..., 0] if rule == "ddl-dv1" else compress(state, w, name)

    for layer in range(LAYERS):
        block = f"transformer.h.{layer}."
        for norm, part, sublayer in (("ln_1", "attn", attention), ("ln_2", "mlp", mlp)):
            x_in = read(block + "compress")
            c = rms_norm(x_in, w[f"{block}{norm}.weight"])
            h = sublayer(c, w, block + part)
            if rule == "baseline":
                state = state + h
                continue
            branch = f"{block}ddl_{part}."
            k = h / torch.sqrt((h * h).sum(-1, keepdim=True) + K_EPS**2)
            beta = 2 * torch.sigmoid(c @ w[branch + "beta.weight"].T + w[branch + "beta.bias"])
            v = 4 * torch.sigmoid(x_in @ w[branch + "v_proj.weight"].T + w[branch + "v_proj.bias"])
            readout = torch.einsum("btd,btdv->btv", k, state)
            state = state + k[..., None] * (beta * (v - readout))[:, :, None, :]
    context = rms_norm(read("readout"), w["ln_f.weight"])
    logits = (BASE_WIDTH / WIDTH) * context @ w["transformer.wte.weight"].T
    return torch.nn.functional.cross_entropy(logits.reshape(-1, VOCAB), targets.reshape(-1))


def rate(step, steps):
    if step < WARMUP:
        return LR * step / WARMUP
    done = (step - WARMUP) / (steps - WARMUP)
    return MIN_LR + 0.5 * (LR - MIN_LR) * (1 + math.cos(math.pi * done))


def train_in_torch(rule, start, stream, steps):
    w = {name: value.double().requires_grad_() for name, value in start.items()}
    groups = []
    for name, value in w.items():
        norm = ".ln_" in name or name.startswith("ln_f") or "_rms." in name
        scale = 1.0 if name == "transformer.wte.weight" else BASE_WIDTH / WIDTH
        groups.append({"params": [value], "weight_decay": 0.0 if norm else DECAY, "scale": scale})
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=(0.9, 0.95), eps=1e-8)
    losses = []
    for step in range(steps):
        begin = [(step * BATCH + b) * CONTEXT for b in range(BATCH)]
        tokens = torch.stack([stream[i : i + CONTEXT] for i in begin])
        targets = torch.stack([stream[i + 1 : i + CONTEXT + 1] for i in begin])
        loss = loss_of(w, rule, tokens, targets)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(w.values(), CLIP)
        for group in optimizer.param_groups:
            group["lr"] = rate(step, steps) * group["scale"]
        optimizer.step()
        losses.append(loss.item())
    return losses, {name: value.detach() for name, value in w.items()}


def train_in_ddl(ddl, rule, start, data, steps, work):
    model, run, out = (os.path.join(work, part) for part in ("start", "run", "end"))
    os.makedirs(model)
    save_file(start, os.path.join(model, "model.safetensors"))
    with open(os.path.join(model, "config.json"), "w") as file:
        json.dump(config_json(rule), file)
    sets = {
        "train.steps": steps, "train.batch": BATCH, "train.lr": LR, "train.min_lr": MIN_LR, "train.warmup": WARMUP,
        "train.warmup_start": "zero", "train.weight_decay": DECAY, "train.decay": "all-but-norms",
        "train.mup_rates": "all-but-embedding", "train.clip": CLIP, "data.order": "stream", "eval.every": 0,
        "eval.windows": 1, "log.every": 1, "log.floor": "false", "model.precision": "f32",
    }
    command = [ddl, "train", "--from", model, "--data", data, "--out", run, "--json"]
    for key, value in sets.items():
        command += ["--set", f"{key}={value}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    subprocess.run([ddl, "export", run, "--layout", "reference", "--out", out], check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(run, "metrics.jsonl")) as file:
        records = [json.loads(line) for line in file]
    return [r["loss"] for r in records if r["event"] == "step"], load_file(os.path.join(out, "model.safetensors"))


def write_tokens(folder, steps):
    """A chain in which a token says something about the next."""
    random = np.random.default_rng(1)
    count = steps * BATCH * CONTEXT + CONTEXT + 1
    tokens = np.zeros(count, np.uint16)
    for i in range(1, count):
        tokens[i] = (5 * int(tokens[i - 1]) + 7) % VOCAB if random.random() < 0.7 else random.integers(VOCAB)
    tokens.tofile(os.path.join(folder, "train.bin"))
    tokens[: 4 * CONTEXT].tofile(os.path.join(folder, "val.bin"))
    return torch.from_numpy(tokens.astype(np.int64))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ddl", required=True, help="the program")
    parser.add_argument("--rules", nargs="+", choices=RULES, default=RULES)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tolerance", type=float, default=2e-5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    failed = False
    print(f"{'rule':<12} {'first loss':>10} {'last loss':>10} {'max |loss|':>11} {'max |weight|':>12} {'rms weight':>11}")
    for rule in args.rules:
        with tempfile.TemporaryDirectory() as work:
            data = os.path.join(work, "data")
            os.makedirs(data)
            stream = write_tokens(data, args.steps)
            start = starting_weights(rule, args.seed)
            losses, weights = train_in_torch(rule, start, stream, args.steps)
            ddl_losses, ddl_weights = train_in_ddl(os.path.abspath(args.ddl), rule, start, data, args.steps, work)
        assert len(losses) == len(ddl_losses) == args.steps, (len(losses), len(ddl_losses))
        ddl_weights.pop("lm_head.weight", None)
        assert weights.keys() == ddl_weights.keys(), weights.keys() ^ ddl_weights.keys()
        loss = max(abs(a - b) for a, b in zip(losses, ddl_losses))
        apart = {name: (weights[name] - ddl_weights[name].double()).abs() for name in weights}
        worst = max(apart, key=lambda name: apart[name].max().item())
        largest = apart[worst].max().item()
        squares = sum((a * a).sum().item() for a in apart.values())
        count = sum(a.numel() for a in apart.values())
        moved = max((weights[name] - start[name].double()).abs().max().item() for name in weights)
        print(
            f"{rule:<12} {losses[0]:>10.6f} {losses[-1]:>10.6f} {loss:>11.2e} {largest:>12.2e} "
            f"{math.sqrt(squares / count):>11.2e}   worst: {worst}; training moved weights by up to {moved:.1e}"
        )
        failed = failed or loss > args.tolerance or largest > args.tolerance
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
