"""Checks `ddl export --layout gguf` with PyPI's gguf and xllamacpp (llama.cpp), by hand:

    python tools/interop/gguf_check.py build/release/ddl BASELINE_RUN...

For every run and type: the file as `gguf` reads it has our tensors; llama.cpp's greedy text is ours (f32, bf16), and the way back
through `ddl import` has the same bits (f32). With q8_0 llama.cpp rounds activations to 8 bits, too, so texts may part where two tokens
are nearly tied: how nearly is printed. The same weights as qwen3 must part from it.
"""

import json
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
F32 = ("--weights", "f32", "--precision", "f32")  # auto may be bf16


def ddl(*arguments):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"ddl {arguments}: {done.stderr}")
    return done.stdout


def llama_text(path):
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx = 96
    params.n_parallel = 1
    params.warmup = False
    params.verbosity = -1
    params.cpuparams.n_threads = 1
    server = xllamacpp.Server(params)
    answer = server.handle_completions({"prompt": PROMPT, "max_tokens": NEW_TOKENS, "temperature": 0, "samplers": ["top_k"], "top_k": 1})
    answer = answer if isinstance(answer, dict) else json.loads(answer)
    return answer["choices"][0]["text"]


def lead_where_parted(model, text, work):
    """How much likelier, in nats, our first choice is where llama.cpp's text leaves it."""
    with open(f"{work}/text", "w") as file:
        file.write(PROMPT + text)
    seen = ""
    for line in ddl("score", model, "--text", f"{work}/text", "--json", "--top", 1, "--precision", "f32").splitlines():
        record = json.loads(line)
        if record["event"] == "token" and len(seen) >= len(PROMPT) and record["rank"] > 1:
            return record["best"][0]["log_probability"] - record["log_probability"]
        seen += record.get("text", "")
    return 0.0


def with_wild_norms(folder, out):
    shutil.copytree(folder, out)
    tensors = load_file(f"{out}/model.safetensors")
    random = numpy.random.default_rng(1)
    for name, tensor in tensors.items():
        if name.endswith("_rms.weight"):
            tensors[name] = random.uniform(0.1, 3, tensor.shape).astype("float32")
    save_file(tensors, f"{out}/model.safetensors")
    return out


def as_qwen3(path, out):
    """The negative control: the same tensors under another architecture's name."""
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(out, "qwen3")
    for field in reader.fields.values():
        if field.name.startswith(("GGUF.", "general.architecture")):
            continue
        kind = field.types[0]
        writer.add_key_value(field.name.replace("hunyuan-dense", "qwen3"), field.contents(), kind, field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data.reshape(tensor.shape[::-1]) if tensor.tensor_type == 0 else tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def check(run):
    ok = True
    ours = ddl("generate", run, "--prompt", PROMPT, "--temperature", 0, "--max-new-tokens", NEW_TOKENS, *F32)
    ours = ours.removesuffix("\n").removeprefix(PROMPT)
    with tempfile.TemporaryDirectory() as work:
        ddl("export", run, "--out", f"{work}/own")
        for kind in ("f32", "bf16", "q8_0"):
            path = f"{work}/{kind}.gguf"
            ddl("export", run, "--layout", "gguf", "--type", kind, "--out", path)
            reader = gguf.GGUFReader(path)
            types = sorted({tensor.tensor_type.name for tensor in reader.tensors})
            text = llama_text(path)
            same = len(os.path.commonprefix([text, ours]))
            ddl("import", path, "--tokenizer", f"{work}/own", "--out", f"{work}/{kind}")
            bits = open(f"{work}/{kind}/model.safetensors", "rb").read() == open(f"{work}/own/model.safetensors", "rb").read()
            mup = json.load(open(f"{work}/own/config.json"))["ddl"]["mup"]
            back = ddl("generate", f"{work}/{kind}", "--prompt", PROMPT, "--temperature", 0, "--max-new-tokens", NEW_TOKENS, *F32)
            as_imported = text == back.removesuffix("\n").removeprefix(PROMPT)
            parted = "" if as_imported else f" (they part where our first choice leads by {lead_where_parted(f'{work}/{kind}', text, work):.4f})"
            print(
                f"{os.path.basename(run):16} {kind:5} {os.path.getsize(path):8} bytes, {len(reader.tensors)} tensors {types}"
                f"  text as ddl's f32: {same} of {len(ours)} characters; as ddl with these numbers: {as_imported}{parted}; bits back {bits}",
                flush=True,
            )
            ok = ok and (as_imported or kind == "q8_0") and (kind != "f32" or (same == len(ours) and (bits or mup)))
        # The order of rotation and norm shows where the norms' weights are far from equal.
        wild = with_wild_norms(f"{work}/own", f"{work}/wild")
        ours = ddl("generate", wild, "--prompt", PROMPT, "--temperature", 0, "--max-new-tokens", NEW_TOKENS, *F32)
        ours = ours.removesuffix("\n").removeprefix(PROMPT)
        ddl("export", wild, "--layout", "gguf", "--out", f"{work}/wild.gguf")
        as_qwen3(f"{work}/wild.gguf", f"{work}/qwen3.gguf")
        right, wrong = (len(os.path.commonprefix([llama_text(f"{work}/{name}.gguf"), ours])) for name in ("wild", "qwen3"))
        print(f"{os.path.basename(run):16} with wild norms: the same for {right} of {len(ours)} characters; as qwen3: for {wrong}", flush=True)
        ok = ok and right == len(ours) and wrong < len(ours)
    return ok


program, *runs = sys.argv[1:]
print(f"gguf {__import__('importlib.metadata').metadata.version('gguf')}, xllamacpp {__import__('importlib.metadata').metadata.version('xllamacpp')}")
sys.exit(0 if all([check(run) for run in runs]) else 1)
