"""Reads a run's event files with a real TensorBoard and compares them with its records, by hand:

    ./ddl train --data DATA --out RUN --set log.tensorboard=true --set log.gates_every=5
    python tools/interop/tensorboard_check.py RUN
"""

import importlib.metadata
import json
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

run = sys.argv[1]
events = EventAccumulator(f"{run}/tensorboard", size_guidance={"scalars": 0, "histograms": 0}).Reload()
tags = events.Tags()
print(f"tensorboard {importlib.metadata.version('tensorboard')}: {len(tags['scalars'])} scalars, {len(tags['histograms'])} histograms")
records = [json.loads(line) for line in open(f"{run}/metrics.jsonl")]
for event, tag in (("step", "train/loss"), ("step", "train/lr"), ("validation", "validation/loss")):
    ours = [(r["step"], r[tag.split("/")[1]]) for r in records if r["event"] == event]
    theirs = [(each.step, each.value) for each in events.Scalars(tag)]
    worst = max(abs(a[1] - b[1]) / abs(a[1]) for a, b in zip(ours, theirs))
    assert [a[0] for a in ours] == [b[0] for b in theirs] and worst < 1e-6, tag
    print(f"{tag}: {len(theirs)} values at the steps that were recorded, within {worst:.1e}")
for tag in tags["histograms"][:3]:
    last = events.Histograms(tag)[-1]
    value = last.histogram_value
    ours = [r for r in records if r["event"] == "gates" and r["step"] == last.step][-1]
    series, _, name = tag.partition("/")
    shares = ours["sublayers"][int(name.split()[0])]["series"][series]["histogram"]
    print(f"{tag}: step {last.step}, {len(value.bucket)} bins, mean {value.sum / value.num:.4f}")
    assert max(abs(a - b) for a, b in zip(value.bucket, shares)) < 1e-12
