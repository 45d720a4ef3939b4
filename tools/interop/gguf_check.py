"""Checks `ddl export --layout gguf` with PyPI's gguf and xllamacpp (llama.cpp), by hand:

    python tools/interop/gguf_check.py build/release/ddl BASELINE_RUN...

For every run and type (f32, bf16, q8_0), behind every token of a text that llama.cpp wrote greedily, the log-probabilities of the whole
vocabulary by three programs that read the same file:

- exact: the model in f64 below, on the numbers that `gguf` reads;
- ddl: `ddl score` in f32 on what `ddl import` made of the file;
- llama.cpp.

How far they may be apart is known beforehand. f32 rounds a log-probability l to about sqrt(width) 2^-24 |l|: the sum of `width` products
has that many roundings, which go both ways. So ddl, and llama.cpp with f32 numbers, may differ from exact by 1e-5 or, where that
is more, by sqrt(width) 2^-24 of the largest |l|. With bf16 and q8_0 llama.cpp also rounds what it multiplies the matrices with: to bf16, or to 8 bits in
blocks of 32. What that does is found without llama.cpp: 32 times the exact model has, in every such place, random numbers as large as the rounding may be. Twice the
largest of the 32 differences, and what f32 may add, is the limit: at each position for the largest difference in the vocabulary, and over the whole text
for the root of the mean square.

llama.cpp's text may leave the most likely token only where that leads by no more than twice the largest of the 32 changes of this very lead. The way back through `ddl import` has
the same bits (f32). Controls that must be too far: the two layers exchanged, with f32 also one norm that is 10% too large, and, with wild norms, the same weights
as qwen3.
"""

import importlib.metadata
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile

import gguf
import numpy
import xllamacpp
from safetensors.numpy import load_file, save_file

PROMPT = "Once upon a time"
NEW_TOKENS = 40
DRAWS = 32
F32 = ("--weights", "f32", "--precision", "f32")  # auto may be bf16


def ddl(*arguments):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"ddl {arguments}: {done.stderr}")
    return done.stdout


class Llama:
    """llama.cpp, with no roundings but those of the file's type: keys and values stay f32."""

    def __init__(self, path):
        params = xllamacpp.CommonParams()
        params.model.path = path
        params.n_ctx = 96
        params.n_parallel = 1
        params.warmup = False
        params.verbosity = -1
        params.cpuparams.n_threads = 1
        params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        self.server = xllamacpp.Server(params)

    def ask(self, prompt, tokens, **more):
        question = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "samplers": ["top_k"], "top_k": 1, **more}
        answer = self.server.handle_completions(question)
        return (answer if isinstance(answer, dict) else json.loads(answer))["choices"][0]

    def text(self):
        return self.ask(PROMPT, NEW_TOKENS)["text"]

    def log_probabilities(self, ids, vocab):
        """[T, V]: behind every token but the last."""
        rows = numpy.full((len(ids) - 1, vocab), numpy.nan)
        for t in range(len(ids) - 1):
            for each in self.ask(ids[: t + 1], 1, logprobs=vocab)["logprobs"]["content"][0]["top_logprobs"]:
                rows[t, each["id"]] = each["logprob"]
        assert not numpy.isnan(rows).any()
        return rows


def ids_of(tokenizer, text):
    """As llama.cpp reads a prompt: end of text, then the text."""
    end = json.loads(ddl("tokenizer", "info", tokenizer, "--json"))["end_of_text"]
    return [end] + [int(each) for each in ddl("tokenizer", "encode", tokenizer, text).split()]


def our_log_probabilities(model, ids, vocab, work):
    with open(f"{work}/ids", "w") as file:
        file.write(" ".join(map(str, ids)))
    rows = numpy.empty((len(ids) - 1, vocab))
    for line in ddl("score", model, "--tokens", f"{work}/ids", "--json", "--top", vocab, "--precision", "f32").splitlines():
        record = json.loads(line)
        if record["event"] == "token":
            for each in record["best"]:
                rows[record["position"] - 1, each["token"]] = each["log_probability"]
    return rows


class Exact:
    """The baseline in f64, on the numbers of a GGUF file. `random` stands for llama.cpp's rounding of what meets a matrix: [draws, T, ...]."""

    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self.kind = {tensor.name: tensor.tensor_type.name for tensor in reader.tensors}
        self.numbers = {}
        for tensor in reader.tensors:
            plain = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            self.numbers[tensor.name] = plain.reshape(tensor.shape[::-1]).astype(numpy.float64)
        value = lambda key: reader.fields[f"hunyuan-dense.{key}"].contents()
        self.layers, self.heads, self.width = value("block_count"), value("attention.head_count"), value("embedding_length")
        self.base, self.eps = value("rope.freq_base"), value("attention.layer_norm_rms_epsilon")

    def product(self, x, name, random):
        kind = self.kind[name]
        if random is not None and kind == "BF16":
            ulp = 2.0 ** numpy.floor(numpy.log2(numpy.maximum(numpy.abs(x), 1e-30))) * 2.0**-7
            x = x + random.uniform(-0.5, 0.5, x.shape) * ulp
        if random is not None and kind == "Q8_0":  # x = d q with q in -127 ... 127, d an f16
            blocks = x.reshape(*x.shape[:-1], -1, 32)
            step = numpy.abs(blocks).max(-1, keepdims=True) / 127
            half = step / 2 + numpy.abs(blocks) * 2.0**-11
            x = (blocks + random.uniform(-1, 1, blocks.shape) * half).reshape(x.shape)
        return x @ self.numbers[name].T

    def norm(self, x, name):
        return x / numpy.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * self.numbers[name]

    def log_probabilities(self, ids, random=None, draws=1):
        T, H = len(ids) - 1, self.heads
        K = self.width // H
        x = numpy.broadcast_to(self.numbers["token_embd.weight"][ids[:-1]], (draws, T, self.width))
        angle = numpy.arange(T)[:, None] * self.base ** (-numpy.arange(0, K, 2) / K)
        cos, sin = (numpy.concatenate([f(angle)] * 2, -1)[:, None] for f in (numpy.cos, numpy.sin))
        future = numpy.triu(numpy.full((T, T), -numpy.inf), 1)
        for block in (f"blk.{n}." for n in range(self.layers)):
            c = self.norm(x, block + "attn_norm.weight")
            # llama.cpp rounds c once for each of the three products, and always the same way.
            state = random.bit_generator.state if random else None
            q, k, v = [], [], []
            for into, name in ((q, "attn_q"), (k, "attn_k"), (v, "attn_v")):
                if random:
                    random.bit_generator.state = state
                into.append(self.product(c, block + name + ".weight", random).reshape(draws, T, H, K))
            turned = []
            for each, name in ((q[0], "attn_q_norm"), (k[0], "attn_k_norm")):
                half = numpy.concatenate([-each[..., K // 2 :], each[..., : K // 2]], -1)
                turned.append(self.norm(each * cos + half * sin, block + name + ".weight").transpose(0, 2, 1, 3))
            scores = turned[0] @ turned[1].transpose(0, 1, 3, 2) / math.sqrt(K) + future
            weight = numpy.exp(scores - scores.max(-1, keepdims=True))
            weight /= weight.sum(-1, keepdims=True)
            read = (weight @ v[0].transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3).reshape(draws, T, self.width)
            x = x + self.product(read, block + "attn_output.weight", random)
            c = self.norm(x, block + "ffn_norm.weight")
            state = random.bit_generator.state if random else None
            gate = self.product(c, block + "ffn_gate.weight", random)
            if random:
                random.bit_generator.state = state
            up = self.product(c, block + "ffn_up.weight", random)
            x = x + self.product(gate / (1 + numpy.exp(-gate)) * up, block + "ffn_down.weight", random)
        logits = self.product(self.norm(x, "output_norm.weight"), "token_embd.weight", random)
        top = logits.max(-1, keepdims=True)
        return logits - top - numpy.log(numpy.exp(logits - top).sum(-1, keepdims=True))

    def rounding(self, ids, exact):
        """[draws, T, V]: what llama.cpp's rounding may do."""
        return self.log_probabilities(ids, numpy.random.default_rng(0), DRAWS) - exact


def worst(differences_TV):
    return numpy.abs(differences_TV).max(-1)


def mean(differences_TV):
    return numpy.sqrt((differences_TV**2).mean((-1, -2)))


def rewrite(path, out, architecture="hunyuan-dense", change=lambda tensors: tensors):
    """The same file but for its architecture's name, or for what `change` does to its tensors."""
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(out, architecture)
    for field in reader.fields.values():
        if field.name.startswith(("GGUF.", "general.architecture")):
            continue
        kind = field.types[0]
        name = field.name.replace("hunyuan-dense", architecture)
        writer.add_key_value(name, field.contents(), kind, field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    tensors = change({tensor.name: numpy.array(tensor.data) for tensor in reader.tensors})
    for tensor in reader.tensors:
        data = tensors[tensor.name]
        writer.add_tensor(tensor.name, data.reshape(tensor.shape[::-1]) if tensor.tensor_type == 0 else data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out


def too_large(tensors):
    """A norm of the first layer times 1.1, in a file whose own numbers are f32."""
    return {**tensors, "blk.0.ffn_norm.weight": tensors["blk.0.ffn_norm.weight"] * numpy.float32(1.1)}


def layers_exchanged(tensors):
    """The first layer in the place of the second."""
    other = {"blk.0.": "blk.1.", "blk.1.": "blk.0."}
    return {name: tensors[other.get(name[:6], name[:6]) + name[6:]] for name in tensors}


def with_wild_norms(folder, out):
    shutil.copytree(folder, out)
    tensors = load_file(f"{out}/model.safetensors")
    random = numpy.random.default_rng(1)
    for name, tensor in tensors.items():
        if name.endswith("_rms.weight"):
            tensors[name] = random.uniform(0.1, 3, tensor.shape).astype("float32")
    save_file(tensors, f"{out}/model.safetensors")
    return out


class Compared:
    """One file, read by three programs. `changed`: a file that llama.cpp reads instead, which must be seen."""

    def __init__(self, path, work, tokenizer, changed=None):
        shutil.rmtree(f"{work}/imported", ignore_errors=True)
        ddl("import", path, "--tokenizer", tokenizer, "--out", f"{work}/imported")
        self.model, llama = f"{work}/imported", Llama(changed or path)
        self.text = llama.text()
        self.ours = ddl("generate", self.model, "--prompt", PROMPT, "--temperature", 0, "--max-new-tokens", NEW_TOKENS, *F32)
        self.ours = self.ours.removesuffix("\n").removeprefix(PROMPT)
        self.ids = ids_of(tokenizer, PROMPT + self.text)
        exact = Exact(path)
        self.exact = exact.log_probabilities(self.ids)[0]
        vocab = self.exact.shape[-1]
        self.largest = numpy.abs(self.exact).max()
        self.f32_limit = max(1e-5, math.sqrt(exact.width) * 2.0**-24 * self.largest)
        self.rounding = exact.rounding(self.ids, self.exact)
        self.limit_T = 2 * worst(self.rounding).max(0) + self.f32_limit
        self.mean_limit = 2 * mean(self.rounding).max() + self.f32_limit
        self.of_ddl = worst(our_log_probabilities(self.model, self.ids, vocab, work) - self.exact).max()
        self.of_llama = llama.log_probabilities(self.ids, vocab) - self.exact
        self.kinds = sorted(set(exact.kind.values()))

    def of_limit(self):
        """Above 1: llama.cpp is further off than rounding explains, at some position or on the whole."""
        return max((worst(self.of_llama) / self.limit_T).max(), mean(self.of_llama) / self.mean_limit)

    def leads(self):
        """Wherever llama.cpp's text leaves the most likely token: by how much that leads, and by how much it may."""
        for t in range(len(ids_of_prompt) - 1, len(self.ids) - 1):
            first, taken = self.exact[t].argmax(), self.ids[t + 1]
            if first != taken:
                change = numpy.abs(self.rounding[:, t, first] - self.rounding[:, t, taken]).max()
                yield self.exact[t, first] - self.exact[t, taken], 2 * (change + self.f32_limit)

    def ok(self):
        explained = self.text == self.ours or any(True for _ in self.leads())
        return bool(self.of_ddl <= self.f32_limit and self.of_limit() <= 1 and explained and not self.text_gives_it_away())

    def text_gives_it_away(self):
        return any(lead > most for lead, most in self.leads())

    def as_control(self):
        return f"{self.of_limit():.{0 if self.of_limit() > 10 else 1}f} times too far{', seen in the text' if self.text_gives_it_away() else ''}"

    def line(self):
        same = len(os.path.commonprefix([self.text, self.ours]))
        text = "the same text" if self.text == self.ours else f"the same text for {same} of {len(self.ours)} characters"
        text += "".join(f", then it leaves a lead of {lead:.4f}, at most {most:.4f}" for lead, most in self.leads())
        return (
            f"|log p| to {self.largest:.1f}; ddl off by {self.of_ddl:.1e} of {self.f32_limit:.1e}; llama.cpp by {worst(self.of_llama).max():.1e}"
            f" (mean {mean(self.of_llama):.1e}), {self.of_limit():.2f} of its limit; {text}"
        )


def check(run):
    global ids_of_prompt
    ok = True
    name = os.path.basename(run)
    with tempfile.TemporaryDirectory() as work:
        own = f"{work}/own"
        ddl("export", run, "--out", own)
        ids_of_prompt = ids_of(own, PROMPT)
        mup = json.load(open(f"{own}/config.json"))["ddl"]["mup"]
        for kind in ("f32", "bf16", "q8_0"):
            path = f"{work}/{kind}.gguf"
            ddl("export", run, "--layout", "gguf", "--type", kind, "--out", path)
            compared = Compared(path, work, own)
            bits = open(f"{work}/imported/model.safetensors", "rb").read() == open(f"{own}/model.safetensors", "rb").read()
            changes = {"layers exchanged": layers_exchanged, "a norm 10% too large": too_large}
            controls = {what: Compared(path, work, own, rewrite(path, f"{work}/changed.gguf", change=change)) for what, change in changes.items()}
            good = compared.ok() and (kind != "f32" or bits or mup) and all(each.of_limit() > 1 for what, each in controls.items() if kind == "f32" or what == "layers exchanged")
            ok = ok and good
            print(f"{'ok  ' if good else 'FAIL'} {name:16} {kind:5} {' '.join(compared.kinds):9} {compared.line()}; bits back {bits}")
            print("".join(f"       {what}: {each.as_control()}\n" for what, each in controls.items()), end="", flush=True)
        # The order of rotation and norm shows where the norms' weights are far from equal.
        wild = with_wild_norms(own, f"{work}/wild")
        ddl("export", wild, "--layout", "gguf", "--out", f"{work}/wild.gguf")
        compared = Compared(f"{work}/wild.gguf", work, own)
        qwen3 = Compared(f"{work}/wild.gguf", work, own, rewrite(f"{work}/wild.gguf", f"{work}/qwen3.gguf", architecture="qwen3"))
        good = compared.ok() and qwen3.of_limit() > 1
        ok = ok and good
        print(f"{'ok  ' if good else 'FAIL'} {name:16} wild norms, f32 {compared.line()}\n       as qwen3: {qwen3.as_control()}", flush=True)
    return ok


program, *runs = sys.argv[1:]
print(f"gguf {importlib.metadata.version('gguf')}, xllamacpp {importlib.metadata.version('xllamacpp')}")
sys.exit(0 if all([check(run) for run in runs]) else 1)
