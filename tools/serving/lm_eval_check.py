"""lm-evaluation-harness' local-completions against a running `ddl serve`, held to the samples of `ddl eval`. By hand:

    pip install "lm-eval[api]"
    ./ddl eval RUN --tasks arc_easy,openbookqa,sciq --data DATA --limit 100 --samples ours.jsonl
    ./ddl serve RUN --port 8080 &
    python tools/serving/lm_eval_check.py http://127.0.0.1:8080 DATA ours.jsonl 100

DATA has a folder with test.jsonl for each task. The tasks are the harness' own but for the place of their rows. Python before
3.12, whose sum() adds floats one after another, gives the same bits; a later one compensates, and may differ in the last.
"""
import json
import sys
import tempfile
import time
from pathlib import Path

import lm_eval
import requests
from lm_eval.tasks import TaskManager
from lm_eval.tasks import __file__ as tasks_file

server, data, samples, limit = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])
model = requests.get(server + "/v1/models").json()["data"][0]
originals = {"arc_easy": "arc/arc_easy.yaml", "openbookqa": "openbookqa/openbookqa.yaml", "sciq": "sciq/sciq.yaml"}

ours = {}
for line in samples.read_text().splitlines():
    row = json.loads(line)
    ours[row["task"], row["doc_id"]] = row["resps"]
names = sorted({task for task, _ in ours})

with tempfile.TemporaryDirectory() as folder:
    for name in names:
        rows = data.resolve() / name / "test.jsonl"
        text = (Path(tasks_file).parent / originals[name]).read_text()
        kept = [l for l in text.splitlines() if not l.startswith(("dataset_", "task:", "training_split", "validation_split", "tag:", "  - ai2"))]
        kept += [f"task: local_{name}", "dataset_path: json", f"dataset_kwargs: {{data_files: {{test: '{rows}'}}}}"]
        (Path(folder) / f"{name}.yaml").write_text("\n".join(kept) + "\n")
    failed = False
    for concurrent, batch in ((1, 1), (8, 4)):
        start = time.time()
        results = lm_eval.simple_evaluate(
            model="local-completions",
            model_args=dict(model=model["id"], base_url=server + "/v1/completions", tokenizer_backend="remote",
                            max_length=model["max_model_len"], num_concurrent=concurrent, batch_size=batch),
            tasks=[f"local_{name}" for name in names], task_manager=TaskManager(include_path=folder), limit=limit,
            log_samples=True, bootstrap_iters=0)
        seconds = time.time() - start
        for name in names:
            theirs = results["samples"][f"local_{name}"]
            numbers = different = 0
            worst = 0.0
            for sample in theirs:
                scores = ours[name, sample["doc_id"]]
                for (likelihood, greedy), (expected, expected_greedy) in zip(
                        (r[0] for r in sample["resps"]), scores, strict=True):
                    numbers += 1
                    different += float(likelihood) != expected or bool(greedy) != bool(expected_greedy)
                    worst = max(worst, abs(float(likelihood) - expected))
            table = results["results"][f"local_{name}"]
            failed |= different > 0
            print(f"{name:12} concurrent {concurrent}, batch {batch}: {len(theirs)} documents, {numbers} log-likelihoods, "
                  f"{different} differ (largest {worst:.1e}); acc {table['acc,none']:.4f}, acc_norm {table['acc_norm,none']:.4f}")
        print(f"{seconds:.1f} s")
sys.exit(failed)
