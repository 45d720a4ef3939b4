"""Byte-level BPE of four families, trained by Hugging Face's tokenizers and read by ddl, by hand:

    python tools/interop/tokenizer_check.py build/release/ddl TEXT

Both programs must give the same ids for lines of TEXT and for random Unicode, and `ddl tokenizer add` must keep the pattern.
"""

import importlib.metadata
import json
import os
import random
import subprocess
import sys
import tempfile

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

COMMON = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def split(pattern):
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )


FAMILIES = {
    "gpt2": pre_tokenizers.ByteLevel(add_prefix_space=False),
    "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]),
    "llama3": split(COMMON % r"\p{N}{1,3}"),
    "qwen2": split(COMMON % r"\p{N}"),
}


def random_text(dice):
    pools = ["abcXYZ", "0123456789", " \n\t\r", "'sStTlLveRE", ".,!?-()", "éßжλ中文字", "²½Ⅷ٣", "\u00a0\u3000\u2028", "🙂́"]
    return "".join(dice.choice(dice.choice(pools)) for _ in range(dice.randrange(1, 60)))


program, text_file = sys.argv[1:]
lines = open(text_file, encoding="utf-8").read().split("\n")
dice = random.Random(1)
samples = [line for line in lines[:300] if line] + ["\n".join(lines[:40])] + [random_text(dice) for _ in range(700)]
print(f"tokenizers {importlib.metadata.version('tokenizers')}, {len(samples)} texts")
environment = dict(os.environ, XDG_DATA_HOME=tempfile.mkdtemp())
for name, pretokenizer in FAMILIES.items():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pretokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=2000, special_tokens=["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(lines + samples, trainer)
    folder = tempfile.mkdtemp()
    tokenizer.save(f"{folder}/tokenizer.json")
    subprocess.run([program, "tokenizer", "add", name, folder], check=True, env=environment, capture_output=True)
    info = json.loads(subprocess.run([program, "tokenizer", "info", name, "--json"], check=True, env=environment, capture_output=True).stdout)
    same = 0
    for text in samples:
        done = subprocess.run([program, "tokenizer", "encode", name, "-"], input=text.encode(), env=environment, capture_output=True, check=True)
        same += list(map(int, done.stdout.split())) == tokenizer.encode(text, add_special_tokens=False).ids
    print(f"{name}: {info['name']}: the same ids for {same} of {len(samples)} texts", flush=True)
    assert same == len(samples)
