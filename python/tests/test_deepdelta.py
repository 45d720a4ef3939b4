"""The package against the program: the same numbers, the same errors."""

import ast
import importlib.metadata
import json
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import deepdelta

PROGRAM = os.environ["DDL_PROGRAM"]
SETS = {
    "model": {"layers": 2, "width": 32, "heads": 2, "context": 48, "residual": "ddl-cc", "precision": "f32"},
    "train": {"steps": 6, "batch": 4, "warmup": 2},
    "log": {"floor": False, "every": 1, "gates_every": 2},
    "eval.every": 3,
}


def ddl(*arguments, cwd):
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, cwd=cwd)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()  # not text=True, which would change what a model says: \r\n


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("deepdelta")
    ddl("data", "generate", "overwrite", "--docs", 80, "--out", "text.jsonl", cwd=path)
    ddl("data", "prepare", "text.jsonl", "--tokenizer", "bytes", "--out", "data", cwd=path)
    return path


@pytest.fixture(scope="session")
def run(folder):
    records = []
    run = deepdelta.train(SETS, folder / "data", folder / "run", on_record=records.append)
    assert [r["step"] for r in records if r["event"] == "step"] == [1, 2, 3, 4, 5, 6]
    return run


@pytest.fixture(scope="session")
def model(run):
    return deepdelta.load(run.path)


def test_training_is_the_programs(folder, run):
    sets = []
    for setting in deepdelta._settings(SETS):
        sets += ["--set", setting]
    ddl("train", "--data", folder / "data", "--out", folder / "by-program", *sets, cwd=folder)
    ours, theirs = run.metrics(["loss"]), deepdelta.Run(folder / "by-program").metrics(["loss"])
    assert np.array_equal(ours["loss"], theirs["loss"])


def test_options_of_a_rule_may_come_before_it(folder):
    sets = {"model.block_size": 1, "model.residual": "attnres-block", "model.layers": 1, "model.width": 32, "model.heads": 2, "model.context": 48}
    trained = deepdelta.train({**sets, "train.steps": 1, "train.batch": 1, "log.floor": False}, folder / "data", folder / "ordered")
    assert trained.model().config["block_size"] == 1


def test_metrics_are_columns(run):
    table = run.metrics()
    assert table["step"].dtype == np.int64 and table["step"].tolist() == [1, 2, 3, 4, 5, 6]
    assert np.isfinite(table["loss"]).all()
    assert np.isfinite(table["validation_loss"]).sum() == 2
    assert np.isfinite(table["gate_3"]).sum() == 3
    assert [r["step"] for r in run.records("validation")] == [3, 6]
    with pytest.raises(deepdelta.Error, match="nearest: loss"):
        run.metrics(["los"])


def test_logprobs_are_those_of_ddl_score(model, folder):
    text = "a=3 b=7 a?3 b?7"
    (folder / "some.txt").write_text(text)
    lines = ddl("score", folder / "run", "--text", "some.txt", "--json", "--gates", cwd=folder).splitlines()
    records = [json.loads(line) for line in lines]
    logprobs = model.logprobs(text)
    assert logprobs.dtype == np.float64
    assert logprobs.tolist() == [r["log_probability"] for r in records[:-1]]
    tokens = model.encode(text)
    assert np.array_equal(model.logprobs(tokens), logprobs)
    assert np.array_equal(model.logprobs(tokens.tolist()), logprobs)
    after = model.next_logprobs(tokens)
    assert after.shape == (len(tokens), model.vocabulary) and after.dtype == np.float32
    assert np.allclose(after[np.arange(len(text)), tokens[1:]], logprobs, atol=1e-5)
    assert np.allclose(np.exp(after.astype(float)).sum(1), 1, atol=1e-5)
    gates = model.trace(tokens[:-1])["gate"]  # what ddl score reads: the last token is only predicted
    assert np.array_equal(gates.T, np.float32([r["gates"]["gate"] for r in records[:-1]]))


def test_trace(model):
    trace = model.trace("a=3 b=7")
    assert trace["gate"].shape == (4, 8) and trace["target"].shape == (4, 8, 4)
    assert ((trace["gate"] > 0) & (trace["gate"] < 2)).all()
    assert np.allclose(trace["loss"][:-1], -model.logprobs("a=3 b=7"), atol=1e-4)
    trace["gate"][0, 0] = 5  # numpy owns it
    del trace


def test_score_of_pairs(model):
    context, rest = model.encode("a=3 ").tolist(), model.encode("b=7", begin=False).tolist()
    ((total, _), (nothing, greedy)) = model.score([(context, rest), (context, [])])
    assert math.isclose(total, model.logprobs(context + rest)[-3:].sum(), rel_tol=1e-12)
    assert nothing == 0 and greedy
    best = int(model.next_logprobs(context)[-1].argmax())
    assert model.score([(context, [best])])[0][1] is True
    with pytest.raises(deepdelta.Error, match="empty context"):
        model.score([([], [1])])


def test_generation(model, folder):
    text = model.generate("a=3 ", max_new_tokens=20, temperature=0)
    shown = ddl("generate", folder / "run", "--prompt", "a=3 ", "--max-new-tokens", 20, "--temperature", 0, cwd=folder)
    assert "a=3 " + text == shown.removesuffix("\n")
    pieces = []
    assert model.generate("a=3 ", max_new_tokens=20, temperature=0, on_text=pieces.append) == text == "".join(pieces)
    # Every option reaches the sampler; without the string that stops it, the others show for longer.
    options = {"temperature": 1.5, "top_k": 40, "top_p": 0.9, "min_p": 0.02, "repetition_penalty": 1.3, "seed": 5}
    flags = [str(each) for name, value in options.items() for each in (f"--{name.replace('_', '-')}", value)]
    whole = model.generate("a=3 ", max_new_tokens=40, **options)
    letter = next(c for c in whole[3:] if c.isascii() and c.isalnum())
    for stop in ([], [letter]):
        shown = ddl("generate", folder / "run", "--prompt", "a=3 ", "--max-new-tokens", 40, "--weights", "f32", *flags, *(["--stop", *stop] if stop else []), cwd=folder)
        assert "a=3 " + model.generate("a=3 ", max_new_tokens=40, stop=stop, **options) == shown.removesuffix("\n")
    assert model.generate("a=3 ", max_new_tokens=40, stop=[letter], **options) == whole[: whole.index(letter)]
    several = model.generate("a=3 ", count=3, max_new_tokens=8, seed=1)
    assert len(several) == 3 and several == model.generate("a=3 ", count=3, max_new_tokens=8, seed=1)
    with pytest.raises(RuntimeError, match="stop here"):
        def stop(piece):
            raise RuntimeError("stop here")
        model.generate("a=3 ", on_text=stop)
    for wrong in ({"temperature": -1}, {"count": 0}, {"count": -3}, {"max_new_tokens": -1}):
        with pytest.raises(deepdelta.Error):
            model.generate("a", **wrong)


def test_a_model_is_loaded_as_asked(model, folder):
    (folder / "some.txt").write_text("a=3 b=7 a?3 b?7")
    lines = ddl("score", folder / "run", "--text", "some.txt", "--json", "--precision", "bf16", cwd=folder).splitlines()
    coarse = deepdelta.load(folder / "run", precision="bf16").logprobs("a=3 b=7 a?3 b?7")
    assert coarse.tolist() == [json.loads(line)["log_probability"] for line in lines[:-1]]
    assert not np.array_equal(coarse, model.logprobs("a=3 b=7 a?3 b?7"))
    ddl("export", folder / "run", "--out", folder / "bare", cwd=folder)
    (folder / "bare" / "tokenizer.json").unlink()
    assert np.array_equal(deepdelta.load(folder / "bare", tokenizer="bytes").encode("a=3"), model.encode("a=3"))
    with pytest.raises(deepdelta.Error, match="name a tokenizer"):
        deepdelta.load(folder / "bare").encode("a=3")


def test_tokens_in_many_forms(model):
    tokens = model.encode("a=3")
    assert tokens.dtype == np.int32 and tokens[0] == model.end_of_text
    assert model.decode(tokens[1:]) == "a=3"
    assert model.decode_bytes([255, 97]) == b"\xffa"
    expected = model.logprobs(tokens)
    for form in (tokens.astype(np.int64), tuple(tokens.tolist()), tokens.astype(np.uint16), np.repeat(tokens, 2)[::2]):
        assert np.array_equal(model.logprobs(form), expected)
    for bad, words in [([[1, 2]], "one sequence"), ([1.5, 2], "token numbers"), ([-1, 2], "negative"),
                       ([1, 2**40], "too large"), ([1, 99999], "vocabulary"), ([1], "at least two")]:  # fmt: skip
        with pytest.raises(deepdelta.Error, match=words):
            model.logprobs(bad)
    with pytest.raises(deepdelta.Error, match="context"):
        model.trace([1] * 100)


def test_ctrl_c_saves_and_training_goes_on(run, folder):
    def stop(record):
        if record["event"] == "step" and record["step"] == 4:
            os.kill(os.getpid(), signal.SIGINT)

    signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt, match="resume=True"):
        deepdelta.train(SETS, folder / "data", folder / "stopped", on_record=stop)
    with pytest.raises(KeyboardInterrupt):  # the handler is Python's again
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)
    again = deepdelta.train(SETS, folder / "data", folder / "stopped", resume=True)
    assert np.array_equal(again.metrics(["loss"])["loss"], run.metrics(["loss"])["loss"])


def test_errors_are_sentences(folder, model):
    with pytest.raises(deepdelta.Error, match="File name too long"):
        deepdelta.load("x" * 5000)
    with pytest.raises(deepdelta.Error, match="no such folder"):
        deepdelta.load(folder / "nothing")
    with pytest.raises(deepdelta.Error, match="did you mean"):
        deepdelta.train({"model.widht": 3}, folder / "data", folder / "x")
    with pytest.raises(deepdelta.Error, match="no such"):
        list(deepdelta.Run(folder / "nothing").records())
    with pytest.raises(deepdelta.Error, match="no such"):
        deepdelta.Run(folder / "nothing").metrics()
    with pytest.raises(ValueError):
        deepdelta.evaluate(model, ["no such task"], folder)
    assert issubclass(deepdelta.Error, ValueError)


def test_evaluation(folder, model):
    rows = folder / "tasks" / "sciq"
    rows.mkdir(parents=True)
    row = {"support": "", "question": "a=3 a", "correct_answer": "3", "distractor1": "4", "distractor2": "5", "distractor3": "6"}
    (rows / "test.jsonl").write_text(json.dumps(row) + "\n")
    ours = deepdelta.evaluate(model, "sciq", folder / "tasks")
    theirs = json.loads(ddl("eval", folder / "run", "--tasks", "sciq", "--data", "tasks", "--json", cwd=folder))
    assert ours["results"] == theirs["results"]
    (rows / "test.jsonl").write_text((json.dumps(row) + "\n") * 3)
    (rows / "train.jsonl").write_text((json.dumps(row) + "\n") * 3)
    ours = deepdelta.evaluate(model, ["sciq"], folder / "tasks", limit=2, shots=1)
    theirs = json.loads(ddl("eval", folder / "run", "--tasks", "sciq", "--data", "tasks", "--json", "--limit", 2, "--shots", 1, cwd=folder))
    assert ours["results"] == theirs["results"] and ours["results"]["sciq"]["sample_len"] == 2
    assert ours["data_hash"] == theirs["data_hash"], "the same texts: as many examples before each question"


def test_other_threads_go_on(model):
    # While a text is written, another thread runs: it is heard of between two pieces of the text. One text may be too
    # short for that on a fast machine. Python itself would change threads only after an hour.
    heard, counted = [0], []
    done = threading.Event()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(3600)

    def count():
        while not done.is_set():
            counted.append(1)
            time.sleep(0)

    thread = threading.Thread(target=count)
    thread.start()
    deadline = time.monotonic() + 20
    while heard[-1] == heard[0] and time.monotonic() < deadline:
        heard.clear()
        model.generate("a", max_new_tokens=30, on_text=lambda piece: heard.append(len(counted)))
    done.set()
    thread.join()
    sys.setswitchinterval(interval)
    assert heard[-1] > heard[0]


def test_config_and_description(model):
    assert deepdelta.__version__ == importlib.metadata.version("deepdelta") == ddl("version", cwd=".").split()[1]
    assert model.residual == "ddl-cc" and model.config["channels"] == 4
    assert model.sublayers == 4 and model.context == 48 and model.parameters > 1000
    assert "ddl-cc" in repr(model) and pathlib.Path(model.folder).is_dir()
    assert all(getattr(deepdelta, name).__doc__ for name in ("load", "train", "evaluate", "metrics", "Model", "Run"))


def test_the_stubs_are_the_modules():
    module = deepdelta._core
    stubs = ast.parse((pathlib.Path(module.__file__).parent / "_core.pyi").read_text())
    kinds = (ast.FunctionDef, ast.ClassDef)

    def compare(there, body):
        names = [each.name for each in body if isinstance(each, kinds)]
        assert sorted(names) == sorted(name for name, each in vars(there).items() if name == "__init__" or not name.startswith("_"))
        for each in body:
            if isinstance(each, ast.FunctionDef) and not each.decorator_list:
                signature = getattr(there, each.name).__doc__.splitlines()[0]  # as nanobind writes it: name(argument: type, ...)
                assert [a.arg for a in each.args.args] == re.findall(r"(?:^\w+\(|, )(\w+)(?=[:,)])", signature), signature

    compare(module, stubs.body)
    compare(module.Model, next(each for each in stubs.body if getattr(each, "name", "") == "Model").body)
    assert (pathlib.Path(deepdelta.__file__).parent / "py.typed").exists()


# What a process of its own begins with: pytest's has a stack for signals already, by its faulthandler.
SIGNALS = """
import ctypes, json, os, pathlib, signal, sys, threading, time
import numpy as np
import deepdelta

class Stack(ctypes.Structure):
    _fields_ = [("sp", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]

def has_stack():
    stack = Stack()
    assert ctypes.CDLL(None).sigaltstack(None, ctypes.byref(stack)) == 0
    return not stack.flags & 2  # SS_DISABLE

signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts in the background ignores it
folder = pathlib.Path(sys.argv[1])
model = deepdelta.load(folder / "run")
sets = json.loads(sys.argv[2])
tokens = np.tile(model.encode("a=3 b=7 a?3 "), 4000)
pairs = [(tokens[: 20 + n % 20].tolist(), tokens[n : n + 5].tolist()) for n in range(4000)]
"""


def with_signals(folder, code, *more, **options):
    command = [sys.executable, "-c", SIGNALS + code, str(folder), json.dumps(SETS), *map(str, more)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def finished(child):
    try:
        out, errors = child.communicate(timeout=60)
    finally:
        child.kill()
    assert child.returncode == 0, errors
    return out


def test_two_threads_share_a_model(run, folder):
    # In a process of its own: where one waits for the other for ever, it has Python's lock, and nothing else runs.
    child = with_signals(folder, """
alone = model.generate("a", max_new_tokens=30, seed=3)
texts = []
write = lambda: texts.append(model.generate("a", max_new_tokens=30, seed=3, on_text=lambda piece: None))
threads = [threading.Thread(target=write) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert texts == [alone] * 4
""")  # fmt: skip
    finished(child)


def test_a_signal_has_a_stack_of_its_own(run, folder, tmp_path):
    # A handler of Python runs inside the computation, where that lets it.
    out = finished(with_signals(folder, """
assert not has_stack()
found = {}
def note(name):
    found[name] = found.get(name, False) or has_stack()

def on_main_thread(name, compute):
    signal.signal(signal.SIGALRM, lambda *_: note(name))
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    compute()
    signal.setitimer(signal.ITIMER_REAL, 0)

on_main_thread("logprobs", lambda: model.logprobs(tokens))
on_main_thread("score", lambda: model.score(pairs))
for thread in [threading.Thread(target=lambda: model.generate("a", max_new_tokens=20, on_text=lambda _: note("generate"))),
               threading.Thread(target=lambda: deepdelta.train(sets, folder / "data", sys.argv[3], on_record=lambda _: note("train")))]:
    thread.start()
    thread.join()
assert not has_stack()
print(json.dumps(found))
""", tmp_path / "signals"))  # fmt: skip
    assert json.loads(out) == {"logprobs": True, "score": True, "generate": True, "train": True}


def test_many_signals_do_no_harm(run, folder):
    # On a CPU with AVX-512 this ends in "corrupted size vs. prev_size" or worse where a signal has no stack of its own.
    child = with_signals(folder, """
context = tokens[: model.context]
calls = [lambda: model.generate("a=3 b=7", count=16, max_new_tokens=20), lambda: model.logprobs(tokens[:2000]),
         lambda: model.trace(context), lambda: model.next_logprobs(context), lambda: model.score(pairs[:200])]
signal.signal(signal.SIGINT, lambda *_: None)
print("begin", flush=True)
end = time.monotonic() + 6
while time.monotonic() < end:
    for call in calls:
        call()
print("end", flush=True)
os._exit(0)  # while Python ends, a signal ends the process
""")  # fmt: skip
    assert child.stdout.readline() == "begin\n"
    while child.poll() is None:
        child.send_signal(signal.SIGINT)
        time.sleep(0.001)
    assert finished(child) == "end\n"


@pytest.mark.parametrize("what", ["logprobs", "score", "generate", "evaluate"])
def test_ctrl_c_ends_a_long_computation(run, folder, what):
    rows = folder / "long" / "sciq"
    rows.mkdir(parents=True, exist_ok=True)
    (rows / "test.jsonl").write_text("".join(
        json.dumps({"support": "", "question": f"a={n} a", "correct_answer": "3", "distractor1": "4", "distractor2": "5", "distractor3": "6"}) + "\n"
        for n in range(20_000)
    ))  # fmt: skip
    child = with_signals(folder, """
calls = {"logprobs": lambda: model.logprobs(np.tile(tokens, 400)), "score": lambda: model.score(pairs * 100),
         "generate": lambda: model.generate("a", count=200_000, max_new_tokens=40), "evaluate": lambda: deepdelta.evaluate(model, "sciq", folder / "long")}
timer = threading.Timer(1, lambda: os.kill(os.getpid(), signal.SIGINT))
timer.start()
begun = time.monotonic()
try:
    calls[sys.argv[3]]()
    print("it ended by itself")
except KeyboardInterrupt:
    print(time.monotonic() - begun)
""", what)  # fmt: skip
    assert 0.9 < float(finished(child)) < 10
