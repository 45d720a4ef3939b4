"""Deep Delta models for Hugging Face transformers: every residual rule of the program ddl in one file.

A Transformer whose residual stream may be more than a sum. Shapes are suffixes of names: B batch, T tokens, D channels
of the state, C width, H heads, K head size, I sources. The state of a token is D planes of C features, `state_BTDC`.

    x = wte[token]
    X = rule.start(x)
    for each block, for F in (attention, MLP):
        x_in = rule.read(X)
        c    = RMSNorm(x_in)
        h    = F(c)
        X    = rule.write(X, h, c, x_in)
    logits = logit_scale * RMSNorm(rule.read(X)) wte^T

A rule is a class with `start`, `read` and `write`; the formula stands above the code. Parameters have the names of the
program ddl, so weights move both ways as they are (`ddl import`, `ddl export --layout transformers`).
"""

import itertools
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from .configuration_deep_delta import DeepDeltaConfig

RULE_EPS = 1e-5  # of norms inside attention and inside a rule; those in front of sublayers have ddl["norm_eps"]


def rms(x, eps):
    """x / sqrt(mean(x^2) + eps), over the last dimension."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


class RMSNorm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        return self.weight * rms(x.float(), self.eps).to(x.dtype)


def Linear(inputs, outputs, bias=False):
    return nn.Linear(inputs, outputs, bias=bias)


def raw(*shape):
    """A parameter that the weights of a trained model fill; a new model starts from `reset` of its owner."""
    return nn.Parameter(torch.zeros(*shape))


# What decoding remembers of a sequence.


class DeepDeltaCache:
    """Keys and values of every layer, and the last inputs of every short convolution over tokens.

    A part finds its own by name: "kv.3", "embedding", "state.0". All tensors have the batch
    first and the tokens second, so generation can reorder, repeat and crop them without knowing what they are.
    """

    is_compileable = False

    def __init__(self):
        self.tensors = {}
        self.seen = 0

    def extend(self, name, new_BT, keep=None):
        """Appends along the tokens; `keep` limits what stays for the next call. Returns old and new together."""
        old = self.tensors.get(name)
        all_BT = new_BT if old is None else torch.cat([old, new_BT], dim=1)
        self.tensors[name] = all_BT if keep is None else all_BT[:, max(0, all_BT.shape[1] - keep) :]
        return all_BT

    def get_seq_length(self, layer_idx=0):
        return self.seen

    def get_max_cache_shape(self, layer_idx=0):
        return None

    def get_max_length(self):
        return None

    def reorder_cache(self, beam_idx):
        self.tensors = {name: t.index_select(0, beam_idx.to(t.device)) for name, t in self.tensors.items()}
        return self

    def batch_select_indices(self, indices):
        self.tensors = {name: t[indices] for name, t in self.tensors.items()}

    def batch_repeat_interleave(self, repeats):
        self.tensors = {name: t.repeat_interleave(repeats, dim=0) for name, t in self.tensors.items()}


def causal_taps(x_BT, taps, name, cache):
    """[x_{t-taps+1}, ..., x_t] for every token: zeros in front of a sequence, or what the cache remembers."""
    T = x_BT.shape[1]
    all_BT = x_BT if cache is None else cache.extend(name, x_BT, keep=taps - 1)
    missing = T + taps - 1 - all_BT.shape[1]
    if missing > 0:
        all_BT = torch.cat([all_BT.new_zeros(all_BT.shape[0], missing, *all_BT.shape[2:]), all_BT], dim=1)
    return [all_BT[:, e : e + T] for e in range(taps)]


# How a sublayer's input is read from the state.


class ChannelCompressor(nn.Module):
    """x_c = sum_d w_dc X_dc"""

    def __init__(self, config):
        super().__init__()
        self.weight = raw(config.ddl["channels"], config.hidden_size)

    def reset(self, std):
        nn.init.constant_(self.weight, 1 / self.weight.shape[0])

    def forward(self, state_BTDC, name, cache):
        return (self.weight * state_BTDC).sum(2)


class ChannelConvolution(nn.Module):
    """The released code's form: a convolution of E taps along the channels, then a read vector. Both fold into one
    weight per feature and channel:

        w_dc = sum_j read_j kernel_mc        m = d - j + floor((E - 1) / 2), where it is in 0 .. E-1
    """

    def __init__(self, config):
        super().__init__()
        channels = config.ddl["channels"]
        taps = config.ddl["channel_kernel"] or channels
        self.weight = raw(taps, config.hidden_size)
        self.read = raw(channels)

    def reset(self, std):
        taps = self.weight.shape[0]
        nn.init.zeros_(self.weight)
        with torch.no_grad():
            self.weight[(taps - 1) // 2] = 1
        nn.init.constant_(self.read, 1 / self.read.shape[0])

    def forward(self, state_BTDC, name, cache):
        channels, taps = self.read.shape[0], self.weight.shape[0]
        x = 0
        for d in range(channels):
            for j in range(channels):
                m = d - j + (taps - 1) // 2
                if 0 <= m < taps:
                    x = x + self.read[j] * self.weight[m] * state_BTDC[:, :, d]
        return x


class TokenCompressor(nn.Module):
    """x_t = sum_d read_d sum_e w_ed * X_{t-(E-1)+e},d: a causal convolution over tokens, then a read vector."""

    def __init__(self, config):
        super().__init__()
        self.weight = raw(config.ddl["state_kernel"], config.ddl["channels"], config.hidden_size)
        self.read = raw(config.ddl["channels"])

    def reset(self, std):
        nn.init.zeros_(self.weight)
        with torch.no_grad():
            self.weight[-1] = 1
        nn.init.constant_(self.read, 1 / self.read.shape[0])

    def forward(self, state_BTDC, name, cache):
        taps = causal_taps(state_BTDC, self.weight.shape[0], name, cache)
        mixed_BTDC = sum(w_DC * x_BTDC for w_DC, x_BTDC in zip(self.weight, taps))
        return torch.einsum("d,btdc->btc", self.read, mixed_BTDC)


class EmbeddingConvolution(nn.Module):
    """X_t,d = sum_e w_ed * x_{t-(E-1)+e}: the embedding becomes D planes by a causal convolution over tokens."""

    def __init__(self, config):
        super().__init__()
        self.weight = raw(config.ddl["embed_kernel"], config.ddl["channels"], config.hidden_size)

    def reset(self, std):
        nn.init.zeros_(self.weight)
        with torch.no_grad():
            self.weight[-1] = 1

    def forward(self, x_BTC, cache):
        taps = causal_taps(x_BTC, self.weight.shape[0], "embedding", cache)
        return sum(w_DC * tap_BTC.unsqueeze(2) for w_DC, tap_BTC in zip(self.weight, taps))


# How a sublayer's output enters the state: the parameters of one sublayer.


class DeltaSublayer(nn.Module):
    """Direction, gates and target of one write:

    k = h / sqrt(|h|^2 + k_eps^2)        r_d = k . X_d        v = 4 sigmoid(W x_in + b), or W c + b, or W c
    beta = 2 sigmoid(w . c + b), or with two layers 2 sigmoid(w2 . tanh(W1 c) + b)

    ddl      X_d + beta (v_d - r_d) k
    wo       X_d + beta v_d k                       write-only: no erase term
    ddl-ew   X_d + (bw v_d - be r_d) k              gates of their own for write and erase
    """

    def __init__(self, config, form):
        super().__init__()
        options = config.ddl
        self.form, self.k_eps, self.value = form, options["k_eps"], options["value"]
        self.beta_init = options["beta_init"]
        self.two_layers = options["gate"] == "two-layer"
        C, hidden = config.hidden_size, options["gate_hidden"]
        self.gate_names = ["beta_erase", "beta_write"] if form == "ddl-ew" else ["beta"]
        for name in self.gate_names:
            if self.two_layers:
                self.add_module(name + "_in", Linear(C, hidden))
                self.add_module(name + "_out", Linear(hidden, 1, bias=True))
            else:
                self.add_module(name, Linear(C, 1, bias=True))
        self.v_proj = Linear(C, state_channels(config), bias=self.value != "linear")

    def reset(self, std):
        p = min(max(self.beta_init / 2, 1e-6), 1 - 1e-6)
        for name in self.gate_names:
            nn.init.constant_(getattr(self, name + "_out" * self.two_layers).bias, math.log(p / (1 - p)))
        if self.v_proj.bias is not None:
            nn.init.constant_(self.v_proj.bias, 0 if self.value == "sigmoid" else 2)

    def gate(self, name, c_BTC):
        if self.two_layers:
            c_BTC, name = torch.tanh(getattr(self, name + "_in")(c_BTC)), name + "_out"
        return 2 * torch.sigmoid(getattr(self, name)(c_BTC))

    def target(self, c_BTC, x_in_BTC):
        if self.value == "sigmoid":
            return 4 * torch.sigmoid(self.v_proj(x_in_BTC))
        return self.v_proj(c_BTC)

    def forward(self, state_BTDC, h_BTC, c_BTC, x_in_BTC):
        h = h_BTC.float()
        k_BTC = (h * torch.rsqrt(h.square().sum(-1, keepdim=True) + self.k_eps**2)).to(state_BTDC.dtype)
        v_BTD = self.target(c_BTC, x_in_BTC)
        gates = [self.gate(name, c_BTC) for name in self.gate_names]
        if self.form == "wo":
            step_BTD = gates[0] * v_BTD
        else:
            r_BTD = torch.einsum("btdc,btc->btd", state_BTDC, k_BTC)
            step_BTD = gates[0] * (v_BTD - r_BTD) if self.form == "ddl" else gates[1] * v_BTD - gates[0] * r_BTD
        return state_BTDC + step_BTD.unsqueeze(-1) * k_BTC.unsqueeze(2)


class Bias(nn.Module):
    """A learned vector under the name NAME.bias."""

    def __init__(self, size):
        super().__init__()
        self.bias = raw(size)


class NormWriteSublayer(nn.Module):
    """x' = x + a RMSNorm(h), a one learned number"""

    def __init__(self, config):
        super().__init__()
        self.scale = Bias(1)
        self.start = config.ddl["write_init"] or 1 / math.sqrt(2 * config.num_hidden_layers)

    def reset(self, std):
        nn.init.constant_(self.scale.bias, self.start)

    def forward(self, state_BTDC, h_BTC, c_BTC, x_in_BTC):
        return state_BTDC + (self.scale.bias * rms(h_BTC, RULE_EPS)).unsqueeze(2)


class AdditiveExpandedSublayer(nn.Module):
    """X'_d = X_d + (B_d + e tanh(w_d . c)) h"""

    def __init__(self, config):
        super().__init__()
        self.add_module("static", Bias(config.ddl["channels"]))
        self.dynamic = Linear(config.hidden_size, config.ddl["channels"])
        self.scale = Bias(1)

    def reset(self, std):
        nn.init.constant_(self.static.bias, 1)
        nn.init.constant_(self.scale.bias, 0.01)

    def forward(self, state_BTDC, h_BTC, c_BTC, x_in_BTC):
        b_BTD = self.static.bias + self.scale.bias * torch.tanh(self.dynamic(c_BTC))
        return state_BTDC + b_BTD.unsqueeze(-1) * h_BTC.unsqueeze(2)


class DecaySublayer(nn.Module):
    """x' = a x + b x_0 + h, with the embedding x_0"""

    def __init__(self, config):
        super().__init__()
        self.state = raw(1)
        self.embedding = raw(1)

    def reset(self, std):
        nn.init.ones_(self.state)
        nn.init.zeros_(self.embedding)

    def forward(self, x_BTC, x0_BTC, h_BTC):
        return self.state * x_BTC + self.embedding * x0_BTC + h_BTC


class HighwaySublayer(nn.Module):
    """x' = x + gate * (h - x),  gate = sigmoid(w * c + b), a number per feature"""

    def __init__(self, config):
        super().__init__()
        self.weight = raw(config.hidden_size)
        self.bias = raw(config.hidden_size)
        self.start = config.ddl["gate_bias"]

    def reset(self, std):
        nn.init.zeros_(self.weight)
        nn.init.constant_(self.bias, self.start)

    def forward(self, x_BTC, h_BTC, c_BTC):
        return x_BTC + torch.sigmoid(self.weight * c_BTC + self.bias) * (h_BTC - x_BTC)


class Rows(nn.Module):
    """Rows of weights under the name NAME.weight, and a bias under NAME.bias where there is one."""

    def __init__(self, rows, inputs, bias=False):
        super().__init__()
        self.weight = raw(rows, inputs)
        if bias:
            self.bias = raw(rows)


class HyperSublayer(nn.Module):
    """Hyper-connections: x_in = sum_i m_i X_i,  X'_j = b_j h + sum_i A_ij X_i,  with u_i = RMSNorm(X_i) and

    m_i = m0_i + ea tanh(u_i . p)    A_ij = A0_ij + ea tanh(u_i . q_j)    b_i = b0_i + eb tanh(u_i . t)

    Without the second terms where `dynamic` is false.
    """

    def __init__(self, config, s, dynamic):
        super().__init__()
        D, C = config.ddl["channels"], config.hidden_size
        self.s, self.dynamic = s, dynamic
        self.static_read, self.static_mix, self.static_write = raw(D), raw(D, D), raw(D)
        if dynamic:
            self.mix_scale, self.write_scale = raw(1), raw(1)
            self.norm = RMSNorm(C, RULE_EPS)
            self.read, self.mix, self.write = Rows(1, C), Rows(D, C), Rows(1, C)

    def reset(self, std):
        D = self.static_read.shape[0]
        with torch.no_grad():
            self.static_read.zero_()[self.s % D] = 1
            self.static_mix.copy_(torch.eye(D))
            self.static_write.fill_(1)
            if self.dynamic:
                self.mix_scale.fill_(0.01)
                self.write_scale.fill_(0.01)
                for rows in (self.read, self.mix, self.write):
                    rows.weight.zero_()

    def numbers(self, state_BTDC):
        B, T = state_BTDC.shape[:2]
        m_BTD = self.static_read.expand(B, T, -1)
        A_BTDD = self.static_mix.expand(B, T, -1, -1)
        b_BTD = self.static_write.expand(B, T, -1)
        if self.dynamic:
            u_BTDC = self.norm(state_BTDC)
            m_BTD = m_BTD + self.mix_scale * torch.tanh(u_BTDC @ self.read.weight[0])
            A_BTDD = A_BTDD + self.mix_scale * torch.tanh(u_BTDC @ self.mix.weight.T)
            b_BTD = b_BTD + self.write_scale * torch.tanh(u_BTDC @ self.write.weight[0])
        return m_BTD, A_BTDD, b_BTD


PERMUTATIONS = list(itertools.permutations(range(4)))  # in lexicographic order, the identity first


class ManifoldSublayer(nn.Module):
    """Manifold-constrained hyper-connections on four streams, with u = RMSNorm(vec X) over all of them:

    m = sigmoid(a1 u P1 + b1)    b = 2 sigmoid(a2 u P2 + b2)    w = softmax(a3 u P3 + b3), over the 24 permutations
    A_ij = sum of w_p over the permutations p with p(j) = i: doubly stochastic
    """

    def __init__(self, config, s):
        super().__init__()
        C = config.hidden_size
        self.s = s
        self.scales = raw(3)
        self.read, self.write, self.mix = Rows(4, 4 * C, True), Rows(4, 4 * C, True), Rows(24, 4 * C, True)

    def reset(self, std):
        with torch.no_grad():
            self.scales.fill_(0.01)
            for rows in (self.read, self.write, self.mix):
                rows.weight.zero_()
            for rows in (self.read, self.write):
                rows.bias.fill_(-1)[self.s % 4] = 1
            self.mix.bias.fill_(-8)[0] = 0

    def numbers(self, state_BTDC):
        u = rms(state_BTDC.flatten(2), RULE_EPS)

        def logits(rows, scale):
            return F.linear(self.scales[scale] * u, rows.weight, rows.bias)

        w_BTP = torch.softmax(logits(self.mix, 2), -1)
        p_PDD = torch.zeros(24, 4, 4, dtype=w_BTP.dtype, device=w_BTP.device)
        for n, p in enumerate(PERMUTATIONS):
            for j in range(4):
                p_PDD[n, p[j], j] = 1
        A = torch.einsum("btp,pij->btij", w_BTP, p_PDD)
        return torch.sigmoid(logits(self.read, 0)), A, 2 * torch.sigmoid(logits(self.write, 1))


class DepthQuery(nn.Module):
    """alpha = softmax_i(q . V_i / rms(V_i)),  x_in = sum_i alpha_i V_i,  q = query * gain"""

    def __init__(self, config):
        super().__init__()
        self.query = raw(config.hidden_size)
        self.gain = raw(config.hidden_size)

    def reset(self, std):
        nn.init.zeros_(self.query)
        nn.init.ones_(self.gain)

    def forward(self, source_BTIC):
        score_BTI = rms(source_BTIC, RULE_EPS) @ (self.query * self.gain)
        return torch.einsum("bti,btic->btc", torch.softmax(score_BTI, -1), source_BTIC)


# The rules. The model asks for `start`, `read(X, s)` and `write(X, s, h, c, x_in)`; sublayer s = 2 * block + (0 attention,
# 1 MLP), and s = S is the readout. Parameters of a block live in the block under PREFIX_attn and PREFIX_mlp.


def state_channels(config):
    name = config.ddl["residual"]
    if name in ("hc", "hc-static", "ihc") or name.endswith(("-cc", "-tc", "-noec")):
        return config.ddl["channels"]
    return 4 if name == "mhc" else 1


class Rule:
    """Keeps the ordinary stream, reads it as it is, and adds: the baseline. Others replace what differs."""

    prefix = None  # of a sublayer's parameters in its block

    def __init__(self, config):
        self.config = config
        self.S = 2 * config.num_hidden_layers

    def make_sublayer(self, s):
        return None

    def add_to_model(self, model):
        """Modules outside the blocks, and those of every sublayer under the program's names."""
        for s in range(self.S):
            part = self.make_sublayer(s)
            if part is not None:
                model.transformer.h[s // 2].add_module(f"{self.prefix}_{kind(s)}", part)

    def part(self, model, s):
        return getattr(model.transformer.h[s // 2], f"{self.prefix}_{kind(s)}")

    def start(self, model, x_BTC, cache):
        return x_BTC

    def read(self, model, state, s, cache):
        return state

    def write(self, model, state, s, h, c, x_in):
        return state + h


def kind(s):
    return "attn" if s % 2 == 0 else "mlp"


class ExpandedRule(Rule):
    """A state of D channels: how it starts, how it is read. Writes are those of `make_sublayer`."""

    def __init__(self, config):
        super().__init__(config)
        name = config.ddl["residual"]
        self.reads_tokens = "-tc" in name
        self.expanded = not name.endswith("-dv1") and name != "norm-write"
        self.convolves = self.expanded and not name.endswith("-noec")
        self.per_block = config.ddl.get("compressor") == "block"

    def compressor_name(self, s):
        if s == self.S:
            return "readout"
        return f"transformer.h.{s // 2}.compress" + ("" if self.per_block else "_" + kind(s))

    def add_to_model(self, model):
        super().add_to_model(model)
        if self.convolves:
            model.input_embed = nn.Module()
            model.input_embed.conv = EmbeddingConvolution(self.config)
        if not self.expanded:
            return
        convolution = self.config.ddl.get("channel_compressor") == "convolution"
        form = TokenCompressor if self.reads_tokens else ChannelConvolution if convolution else ChannelCompressor
        for s in range(self.S + 1):
            if s < self.S and self.per_block and s % 2 == 1:
                continue
            name = self.compressor_name(s)
            owner, _, last = name.rpartition(".")
            model.get_submodule(owner).add_module(last, form(self.config))

    def start(self, model, x_BTC, cache):
        if self.convolves:
            return model.input_embed.conv(x_BTC, cache)
        return x_BTC.unsqueeze(2).repeat(1, 1, state_channels(self.config), 1)

    def read(self, model, state_BTDC, s, cache):
        if not self.expanded:
            return state_BTDC[:, :, 0]
        # One compressor may serve two sublayers; what it remembers of each is apart.
        return model.get_submodule(self.compressor_name(s))(state_BTDC, f"state.{s}", cache)

    def write(self, model, state_BTDC, s, h, c, x_in):
        return self.part(model, s)(state_BTDC, h, c, x_in)


class DeltaRule(ExpandedRule):
    prefix = "ddl"

    def make_sublayer(self, s):
        name = self.config.ddl["residual"]
        form = "ddl-ew" if name.startswith("ddl-ew-") else name.partition("-")[0]
        return DeltaSublayer(self.config, form)


class NormWriteRule(ExpandedRule):
    prefix = "write"

    def make_sublayer(self, s):
        return NormWriteSublayer(self.config)


class AdditiveExpandedRule(ExpandedRule):
    prefix = "write"

    def make_sublayer(self, s):
        return AdditiveExpandedSublayer(self.config)


class DecayRule(Rule):
    """The state is the pair of x and the embedding."""

    prefix = "decay"

    def make_sublayer(self, s):
        return DecaySublayer(self.config)

    def start(self, model, x_BTC, cache):
        return torch.stack([x_BTC, x_BTC], dim=2)

    def read(self, model, state, s, cache):
        return state[:, :, 0]

    def write(self, model, state, s, h, c, x_in):
        x, x0 = state.unbind(2)
        return torch.stack([self.part(model, s)(x, x0, h), x0], dim=2)


class HighwayRule(Rule):
    prefix = "highway"

    def make_sublayer(self, s):
        return HighwaySublayer(self.config)

    def write(self, model, x_BTC, s, h, c, x_in):
        return self.part(model, s)(x_BTC, h, c)


class StreamsRule(Rule):
    """D streams that every write mixes anew; the readout is their sum."""

    def __init__(self, config):
        super().__init__(config)
        self.prefix = "mhc" if config.ddl["residual"] == "mhc" else "hc"

    def make_sublayer(self, s):
        if self.prefix == "mhc":
            return ManifoldSublayer(self.config, s)
        return HyperSublayer(self.config, s, dynamic=self.config.ddl["residual"] == "hc")

    def start(self, model, x_BTC, cache):
        return x_BTC.unsqueeze(2).repeat(1, 1, state_channels(self.config), 1)

    def read(self, model, state_BTDC, s, cache):
        if s == self.S:
            return state_BTDC.sum(2)
        m_BTD, _, _ = self.part(model, s).numbers(state_BTDC)
        return torch.einsum("btd,btdc->btc", m_BTD, state_BTDC)

    def write(self, model, state_BTDC, s, h_BTC, c, x_in):
        _, A_BTDD, b_BTD = self.part(model, s).numbers(state_BTDC)
        return b_BTD.unsqueeze(-1) * h_BTC.unsqueeze(2) + torch.einsum("btij,btic->btjc", A_BTDD, state_BTDC)


class DepthRule(Rule):
    """Attention over depth: the state is all sources, the embedding and the outputs (or sums over blocks of them)."""

    prefix = "depth"

    def __init__(self, config):
        super().__init__(config)
        self.block = config.ddl.get("block_size", 1) if config.ddl["residual"] == "attnres-block" else 1

    def make_sublayer(self, s):
        return DepthQuery(self.config) if s > 0 else None

    def add_to_model(self, model):
        super().add_to_model(model)
        model.readout = DepthQuery(self.config)

    def start(self, model, x_BTC, cache):
        return x_BTC.unsqueeze(2)

    def read(self, model, source_BTIC, s, cache):
        if s == 0:
            return source_BTIC[:, :, 0]
        return (model.readout if s == self.S else self.part(model, s))(source_BTIC)

    def write(self, model, source_BTIC, s, h_BTC, c, x_in):
        if s % self.block == 0:
            return torch.cat([source_BTIC, h_BTC.unsqueeze(2)], dim=2)
        return torch.cat([source_BTIC[:, :, :-1], (source_BTIC[:, :, -1] + h_BTC).unsqueeze(2)], dim=2)


def make_rule(config):
    name = config.ddl["residual"]
    if name == "baseline":
        return Rule(config)
    if name.startswith(("ddl-", "wo-")):
        return DeltaRule(config)
    rules = {
        "norm-write": NormWriteRule,
        "ihc": AdditiveExpandedRule,
        "decay-x0": DecayRule,
        "highway": HighwayRule,
        "hc": StreamsRule,
        "hc-static": StreamsRule,
        "mhc": StreamsRule,
        "attnres": DepthRule,
        "attnres-block": DepthRule,
    }
    if name not in rules:
        raise ValueError(f"this file has no residual rule {name!r}; export the model again with a newer ddl")
    return rules[name](config)


# The backbone.


def rotate(x_BTHK, position_BT, base):
    """Rotary positions, split halves: for i < K/2 the pair (x_i, x_{i+K/2}) turns by t * base^(-2i/K)."""
    K = x_BTHK.shape[-1]
    frequency = base ** (-torch.arange(0, K, 2, device=x_BTHK.device, dtype=torch.float64) / K)
    angle = position_BT.to(torch.float64).unsqueeze(-1) * frequency
    cos, sin = (f(angle).to(x_BTHK.dtype).unsqueeze(2) for f in (torch.cos, torch.sin))
    first, second = x_BTHK.chunk(2, -1)
    return torch.cat([first * cos - second * sin, first * sin + second * cos], -1)


class Attention(nn.Module):
    """q' = RMSNorm(rotate(W_q c)), k' = RMSNorm(rotate(W_k c)): the rotation comes first. Then causal attention."""

    def __init__(self, config, layer):
        super().__init__()
        C, self.H, self.K = config.hidden_size, config.num_attention_heads, config.head_dim
        self.layer, self.base = layer, config.ddl.get("rope_base", 10000.0)
        self.c_q, self.c_k, self.c_v, self.c_proj = (Linear(C, C) for _ in range(4))
        self.q_rms, self.k_rms = RMSNorm(self.K, RULE_EPS), RMSNorm(self.K, RULE_EPS)

    def forward(self, c_BTC, position_BT, mask, cache):
        B, T, C = c_BTC.shape
        q, k, v = (f(c_BTC).view(B, T, self.H, self.K) for f in (self.c_q, self.c_k, self.c_v))
        q = self.q_rms(rotate(q, position_BT, self.base))
        k = self.k_rms(rotate(k, position_BT, self.base))
        if cache is not None:
            k, v = cache.extend(f"kv.{self.layer}", torch.stack([k, v], dim=2)).unbind(2)
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        o = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.c_proj(o.transpose(1, 2).reshape(B, T, C))


class MLP(nn.Module):
    """W_o (silu(W_1 c) * (W_2 c))"""

    def __init__(self, config):
        super().__init__()
        C, hidden = config.hidden_size, config.intermediate_size
        self.c_fc1, self.c_fc2, self.c_proj = Linear(C, hidden), Linear(C, hidden), Linear(hidden, C)

    def forward(self, c_BTC):
        return self.c_proj(F.silu(self.c_fc1(c_BTC)) * self.c_fc2(c_BTC))


class Block(nn.Module):
    """The parameters of a block; the rule adds its own beside them."""

    def __init__(self, config, layer):
        super().__init__()
        eps = config.ddl.get("norm_eps", 1e-5)
        self.ln_1, self.ln_2 = RMSNorm(config.hidden_size, eps), RMSNorm(config.hidden_size, eps)
        self.attn, self.mlp = Attention(config, layer), MLP(config)


class DeepDeltaPreTrainedModel(PreTrainedModel):
    config_class = DeepDeltaConfig
    base_model_prefix = "transformer"
    supports_gradient_checkpointing = True
    _no_split_modules = ["Block"]
    _supports_sdpa = True
    _supports_cache_class = True
    _is_stateful = True  # the short convolutions' pasts cannot be cropped: no assisted generation

    def _init_weights(self, module):
        """Starting values as the program draws them: normal matrices, small outputs, and what a rule says of its own."""
        options = self.config.ddl
        std = options.get("hidden_std_factor", 0.5) / math.sqrt(self.config.hidden_size)
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=std)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            width = options["base_width"] if options.get("mup") else self.config.hidden_size
            longer = math.sqrt(max(1, 768 / width))
            nn.init.normal_(module.weight, std=options.get("embedding_std", 0) or 0.02 * longer)
        elif isinstance(module, RMSNorm):
            nn.init.ones_(module.weight)
        elif isinstance(module, (Attention, MLP)):
            factor = math.sqrt(state_channels(self.config)) if options["residual"] in ("hc", "hc-static") else 1
            output = options.get("output_std_factor", 1.0) * std / math.sqrt(self.config.num_hidden_layers)
            nn.init.normal_(module.c_proj.weight, std=output * factor)
        elif hasattr(module, "reset"):
            module.reset(std)


class DeepDeltaForCausalLM(DeepDeltaPreTrainedModel, GenerationMixin):
    def __init__(self, config):
        super().__init__(config)
        if not config.tie_word_embeddings:
            raise ValueError("tie_word_embeddings is false: the head of a Deep Delta model is its embedding")
        self.transformer = nn.Module()
        self.transformer.wte = nn.Embedding(config.vocab_size, config.hidden_size)
        self.transformer.h = nn.ModuleList(Block(config, i) for i in range(config.num_hidden_layers))
        self.ln_f = RMSNorm(config.hidden_size, config.ddl.get("norm_eps", 1e-5))
        self.rule = make_rule(config)
        self.rule.add_to_model(self)
        # muP: logits are scaled by base width / width
        mup = config.ddl.get("mup", False)
        self.logit_scale = config.ddl["base_width"] / config.hidden_size if mup else 1.0
        self.gradient_checkpointing = False
        self.post_init()

    def get_input_embeddings(self):
        return self.transformer.wte

    def set_input_embeddings(self, embeddings):
        self.transformer.wte = embeddings

    def get_output_embeddings(self):
        return None  # the head is the embedding itself

    def sublayer(self, s, state, position_BT, mask, cache):
        block = self.transformer.h[s // 2]
        x_in = self.rule.read(self, state, s, cache)
        c = (block.ln_1 if s % 2 == 0 else block.ln_2)(x_in)
        h = block.attn(c, position_BT, mask, cache) if s % 2 == 0 else block.mlp(c)
        return self.rule.write(self, state, s, h, c, x_in)

    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        position_ids=None,
        past_key_values=None,
        inputs_embeds=None,
        labels=None,
        use_cache=None,
        logits_to_keep=0,
        return_dict=None,
        **kwargs,
    ):
        x_BTC = self.transformer.wte(input_ids) if inputs_embeds is None else inputs_embeds
        B, T, _ = x_BTC.shape
        checkpointing = self.gradient_checkpointing and self.training
        use_cache = (self.config.use_cache if use_cache is None else use_cache) and not checkpointing
        cache = past_key_values if isinstance(past_key_values, DeepDeltaCache) else None
        if use_cache and cache is None:
            cache = DeepDeltaCache()
        past = cache.seen if cache is not None else 0
        mask, real_BT = causal_mask(attention_mask, B, T, past, x_BTC.device)
        if position_ids is None:
            position_ids = torch.arange(past, past + T, device=x_BTC.device).expand(B, T)
            if real_BT is not None:  # padding in front does not count
                position_ids = (real_BT.cumsum(1) - 1).clamp(min=0)[:, -T:]
        x_BTC = without_padding(x_BTC, real_BT)

        state = without_padding(self.rule.start(self, x_BTC, cache), real_BT)
        for s in range(2 * self.config.num_hidden_layers):
            if checkpointing:
                state = checkpoint(self.sublayer, s, state, position_ids, mask, None, use_reentrant=False)
            else:
                state = self.sublayer(s, state, position_ids, mask, cache)
            state = without_padding(state, real_BT)
        readout_BTC = self.ln_f(self.rule.read(self, state, 2 * self.config.num_hidden_layers, cache))
        if cache is not None:
            cache.seen += T

        keep = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) and logits_to_keep else slice(None)
        keep = logits_to_keep if isinstance(logits_to_keep, torch.Tensor) else keep
        logits = self.logit_scale * F.linear(readout_BTC[:, keep], self.transformer.wte.weight)
        loss = None
        if labels is not None:
            # A batch of accumulated gradients is averaged over all its targets, which the Trainer counts.
            targets = labels[:, 1:].reshape(-1)
            count = kwargs.get("num_items_in_batch")
            total = F.cross_entropy(
                logits[:, :-1].reshape(-1, logits.shape[-1]).float(), targets, reduction="mean" if count is None else "sum"
            )
            loss = total if count is None else total / count
        output = CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=cache if use_cache else None)
        return output.to_tuple() if return_dict is False else output

    def prepare_inputs_for_generation(self, input_ids, past_key_values=None, attention_mask=None, **kwargs):
        cache = past_key_values if isinstance(past_key_values, DeepDeltaCache) else None
        if cache is not None and cache.seen > 0:
            input_ids = input_ids[:, cache.seen :]
        return {
            "input_ids": input_ids,
            "past_key_values": cache,
            "attention_mask": attention_mask,
            "use_cache": kwargs.get("use_cache", True),
            "logits_to_keep": 1,
        }

    def _prepare_cache_for_generation(self, *args, **kwargs):
        return False  # forward makes its own

    @classmethod
    def _supports_default_dynamic_cache(cls):
        return False


def without_padding(x_BT, real_BT):
    """Zero at padding: a short convolution over tokens then sees zeros in front of a sequence, as without padding."""
    if real_BT is None:
        return x_BT
    T = x_BT.shape[1]
    return x_BT * real_BT[:, -T:].reshape(-1, T, *[1] * (x_BT.dim() - 2)).to(x_BT.dtype)


def causal_mask(attention_mask, B, T, past, device):
    """True where a token may look: at itself and at what came before it, padding left out. And the mask of padding by
    itself, None where there is none."""
    mask = torch.ones(T, past + T, dtype=torch.bool, device=device).tril(past)
    if attention_mask is None or bool(attention_mask.all()):
        return mask, None
    real = attention_mask.bool()
    own = torch.eye(past + T, dtype=torch.bool, device=device)[past:]  # a row of nothing would give NaN
    return (mask & real[:, None, None, :]) | own, real
