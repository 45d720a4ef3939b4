"""Byte-level BPE of four families, trained by Hugging Face's tokenizers and read by ddl, by hand:

    python tools/interop/tokenizer_check.py build/release/ddl TEXT

Both programs must give the same ids for lines of TEXT, for random Unicode and for decomposed text, and `ddl tokenizer add` must keep the
pattern. The fifth is Qwen 2's pattern with the normalizer NFC, as Qwen's own file has it; without the normalizer, as a negative control, ids
must differ.
"""

import importlib.metadata
import json
import os
import random
import subprocess
import sys
import tempfile
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

COMMON = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def split(pattern):
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )


FAMILIES = {
    "gpt2": (pre_tokenizers.ByteLevel(add_prefix_space=False), None),
    "smollm": (pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]), None),
    "llama3": (split(COMMON % r"\p{N}{1,3}"), None),
    "qwen2": (split(COMMON % r"\p{N}"), None),
    "qwen2-nfc": (split(COMMON % r"\p{N}"), normalizers.NFC()),
}
WORDS = "déjà vu Ångström naïve Việt Nam được tiếng 안녕하세요 세계 한글 हिन्दी क़लम मैं ガギグ パピプ שָׁלוֹם السَّلَامُ ἄνθρωπος Ω K Å ≠ ≯ ﬁ".split()


def random_text(dice):
    pools = ["abcXYZ", "0123456789", " \n\t\r", "'sStTlLveRE", ".,!?-()", "éßжλ中文字", "²½Ⅷ٣", "\u00a0\u3000\u2028", "🙂́"]
    return "".join(dice.choice(dice.choice(pools)) for _ in range(dice.randrange(1, 60)))


def marked_text(dice):
    """Words of many scripts, each composed, decomposed or as it comes, and loose marks and Hangul letters between them."""
    parts = []
    for _ in range(dice.randrange(1, 12)):
        word = dice.choice(WORDS)
        parts.append(dice.choice([word, unicodedata.normalize("NFC", word), unicodedata.normalize("NFD", word)]))
        if dice.random() < 0.3:
            parts.append("".join(dice.choice("\u0301\u0323\u0302\u0308\u0327\u0338\u0345\u093c\u1161\u11a7\u11a8\u212b\u2126\u0344\u0958") for _ in range(dice.randrange(1, 5))))
        parts.append(dice.choice([" ", "", "\n", ", "]))
    return "".join(parts)


def ids_of(name, text, *flags):
    done = subprocess.run([program, "tokenizer", "encode", name, "-", *flags], input=text.encode(), env=environment, capture_output=True, check=True)
    return list(map(int, done.stdout.split()))


program, text_file = sys.argv[1:]
lines = open(text_file, encoding="utf-8").read().split("\n")
dice = random.Random(1)
samples = [line for line in lines[:300] if line] + ["\n".join(lines[:40])] + [random_text(dice) for _ in range(700)]
marked = [marked_text(dice) for _ in range(700)]
samples += marked
print(f"tokenizers {importlib.metadata.version('tokenizers')}, {len(samples)} texts, {sum(unicodedata.normalize('NFC', t) != t for t in samples)} of them not in form C")
environment = dict(os.environ, XDG_DATA_HOME=tempfile.mkdtemp())
for name, (pretokenizer, normalizer) in FAMILIES.items():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pretokenizer
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    end = AddedToken("<|endoftext|>", special=True, normalized=False)
    trainer = trainers.BpeTrainer(vocab_size=2000, special_tokens=[end], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(lines + samples, trainer)
    folder = tempfile.mkdtemp()
    tokenizer.save(f"{folder}/tokenizer.json")
    subprocess.run([program, "tokenizer", "add", name, folder], check=True, env=environment, capture_output=True)
    info = json.loads(subprocess.run([program, "tokenizer", "info", name, "--json"], check=True, env=environment, capture_output=True).stdout)
    same = 0
    for text in samples:
        same += ids_of(name, text) == tokenizer.encode(text, add_special_tokens=False).ids
    print(f"{name}: {info['name']}: the same ids for {same} of {len(samples)} texts", flush=True)
    assert same == len(samples)
    if not normalizer:
        continue
    # The end of text between parts that combine: found before normalising, or after it where the file says so.
    split_texts = [a + "<|endoftext|>" + dice.choice(["", "\u0338", "\u0301", " "]) + b for a, b in zip(marked[:100], marked[100:200])]
    for late in (False, True):
        file = json.load(open(f"{folder}/tokenizer.json"))
        file["added_tokens"][0]["normalized"] = late
        json.dump(file, open(f"{folder}/tokenizer.json", "w"))
        there = Tokenizer.from_file(f"{folder}/tokenizer.json")
        same = sum(ids_of(folder, text, "--special") == there.encode(text, add_special_tokens=False).ids for text in split_texts)
        print(f"  with the end of text, \"normalized\": {str(late).lower()}: {same} of {len(split_texts)}", flush=True)
        assert same == len(split_texts)
    # What ddl writes is read there.
    kept = Tokenizer.from_file(f"{environment['XDG_DATA_HOME']}/ddl/tokenizers/{name}/tokenizer.json")
    same = sum(kept.encode(text, add_special_tokens=False).ids == tokenizer.encode(text, add_special_tokens=False).ids for text in samples)
    print(f"  the file as ddl keeps it, read by tokenizers: {same} of {len(samples)}")
    assert same == len(samples)
    file["normalizer"] = None
    json.dump(file, open(f"{folder}/tokenizer.json", "w"))
    differ = sum(ids_of(folder, text) != tokenizer.encode(text, add_special_tokens=False).ids for text in marked)
    print(f"  without the normalizer (negative control): other ids for {differ} of {len(marked)} marked texts")
    assert differ > len(marked) // 2
