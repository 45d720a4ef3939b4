"""Parquet files as real corpora have them, written by pyarrow and read by ddl; then the same files damaged.

    python tools/interop/parquet_check.py build/release/ddl [MUTATIONS]

Whole files: what `ddl data prepare` makes of one is what it makes of the same texts as JSON Lines, token for token. Damaged files: exit code
0 or 2, never a crash, and an error that names the file.
"""

import hashlib
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import pyarrow as pa
import pyarrow.parquet as pq

program, *rest = sys.argv[1:]
mutations = int(rest[0]) if rest else 400
dice = random.Random(1)
work = pathlib.Path(tempfile.mkdtemp())
WORDS = "the of and a to in is you that it he was for on are as with his they I at be this have from or one had by".split()


def text(words):
    return " ".join(dice.choice(WORDS) for _ in range(words)) + dice.choice(["", ".", " é", " 中文", "\n\nx"])


def prepare(source, name, *more):
    done = subprocess.run(
        [program, "data", "prepare", str(source), "--tokenizer", "bytes", "--out", str(work / name), "--val-fraction", "0.1", *more],
        capture_output=True, text=True, errors="replace",
    )  # fmt: skip
    return done


def tokens_of(name):
    """Every shard, byte for byte."""
    files = sorted(path for path in (work / name).rglob("*.bin"))
    assert files, list((work / name).rglob("*"))
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]


texts = [text(dice.randrange(1, 120)) for _ in range(3000)]
texts[7] = ""
texts[11] = text(40000)  # longer than a page
repeated = [dice.choice(texts[:50]) for _ in texts]  # what dictionary pages are for
rows = {
    "id": [f"<urn:uuid:{i}>" for i in range(len(texts))],
    "score": [dice.random() * 5 for _ in texts],
    "token_count": [len(t) // 4 for t in texts],
    "url": [f"https://example.org/{i}" for i in range(len(texts))],
}
FORMS = {
    "snappy": (texts, pa.string(), dict(compression="snappy")),
    "zstd": (texts, pa.string(), dict(compression="zstd", row_group_size=500)),
    "gzip": (texts, pa.string(), dict(compression="gzip", row_group_size=1000)),
    "none": (texts, pa.string(), dict(compression="none", use_dictionary=False, data_page_size=2000)),
    "large strings": (texts, pa.large_string(), dict(compression="snappy")),
    "dictionary": (repeated, pa.string(), dict(compression="zstd", use_dictionary=["text"], row_group_size=700)),
    "dictionary that overflows": (texts, pa.string(), dict(use_dictionary=["text"], dictionary_pagesize_limit=3000)),
    "version 2 pages": (texts, pa.string(), dict(data_page_version="2.0", compression="zstd")),
    "delta lengths": (texts, pa.string(), dict(use_dictionary=False, column_encoding={"text": "DELTA_LENGTH_BYTE_ARRAY"})),
    "checksums": (texts, pa.string(), dict(write_page_checksum=True)),
    "many row groups": (texts, pa.string(), dict(row_group_size=17)),
}


def write(path, values, kind, options):
    columns = {**rows, "text": pa.array(values, kind)}
    pq.write_table(pa.table(columns), path, **options)


def same_as_json_lines(values, name):
    lines = work / f"{name}.jsonl"
    lines.write_text("".join(json.dumps({"text": v}, ensure_ascii=False) + "\n" for v in values), encoding="utf-8")
    done = prepare(lines, f"{name}-lines")
    assert done.returncode == 0, done.stderr
    return tokens_of(f"{name}-lines")


print(f"pyarrow {pa.__version__}")
expected = {id(values): same_as_json_lines(values, name) for name, values in (("texts", texts), ("repeated", repeated))}
for i, (name, (values, kind, options)) in enumerate(FORMS.items()):
    path = work / f"form-{i}.parquet"
    write(path, values, kind, options)
    done = prepare(path, f"form-{i}")
    assert done.returncode == 0, (name, done.stderr)
    assert tokens_of(f"form-{i}") == expected[id(values)], name
    print(f"{name}: {pq.ParquetFile(path).num_row_groups} row groups, the same tokens as JSON Lines", flush=True)

# Nulls are bad rows, which are named and may be left out.
with_nulls = [None if i % 100 == 5 else t for i, t in enumerate(texts)]
write(work / "nulls.parquet", with_nulls, pa.string(), dict(row_group_size=400))
done = prepare(work / "nulls.parquet", "nulls")
assert done.returncode == 2 and "row 6: column 'text' is null" in done.stderr, done.stderr
done = prepare(work / "nulls.parquet", "nulls", "--skip-bad", "30")
assert done.returncode == 0, done.stderr
kept = [t for t in with_nulls if t is not None]
assert tokens_of("nulls") == same_as_json_lines(kept, "kept")
print("nulls: named, or left out with --skip-bad")

# Another column; one that is not there; one that holds no text.
assert prepare(work / "form-0.parquet", "urls", "--field", "url").returncode == 0
done = prepare(work / "form-0.parquet", "x", "--field", "words")
assert done.returncode == 2 and "no column 'words' (found: id, score, token_count, url, text)" in done.stderr, done.stderr
done = prepare(work / "form-0.parquet", "x", "--field", "score")
assert done.returncode == 2 and "does not hold one string per row" in done.stderr, done.stderr
print("other columns: read, or refused by name")

# To training.
train = [program, "train", "--data", str(work / "form-0"), "--out", str(work / "run")]
for each in ("model.layers=1", "model.width=32", "model.heads=2", "model.context=64", "train.steps=3", "train.batch=2", "log.floor=false"):
    train += ["--set", each]
done = subprocess.run(train, capture_output=True, text=True)
assert done.returncode == 0, done.stderr
print("three steps of training on it")

# Damage: cut short, bytes changed, pieces exchanged.
codes, messages = {0: 0, 2: 0}, {}
sources = [work / f"form-{i}.parquet" for i in range(len(FORMS))]
for n in range(mutations):
    original = dice.choice(sources).read_bytes()
    damaged = bytearray(original)
    how = n % 4
    if how == 0:
        damaged = damaged[: dice.randrange(len(damaged))]
    elif how == 1:
        for _ in range(dice.randrange(1, 6)):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
    elif how == 2:  # in the footer, which says where everything is
        size = int.from_bytes(damaged[-8:-4], "little")
        for _ in range(dice.randrange(1, 4)):
            damaged[len(damaged) - 8 - dice.randrange(1, size)] = dice.randrange(256)
    else:
        a, length = dice.randrange(len(damaged)), dice.randrange(1, 200)
        b = dice.randrange(len(damaged))
        damaged[a : a + length] = original[b : b + length]
    path = work / "damaged.parquet"
    path.write_bytes(damaged)
    done = prepare(path, "damaged", "--force", "--skip-bad", "3000")
    assert done.returncode in codes, (n, done.returncode, done.stderr[-500:])
    codes[done.returncode] += 1
    if done.returncode == 2:
        assert "damaged.parquet" in done.stderr or "no documents" in done.stderr or "document" in done.stderr, done.stderr
        kind = "its footer" if "its footer" in done.stderr else "row group, column and row" if "row group" in done.stderr else "other"
        messages[kind] = messages.get(kind, 0) + 1
print(f"{mutations} damaged files: {codes[2]} refused ({messages}), {codes[0]} read (damage in another column, or in unused bytes); no crash")
