"""Deep Delta from Python: Transformers whose residual stream is rewritten, on numpy arrays.

>>> import deepdelta
>>> model = deepdelta.load("runs/stories")
>>> model.generate("Once upon a time", max_new_tokens=40)
>>> model.trace(model.encode("Once upon a time"))["gate"]        # [sublayers, tokens]

`load` opens a run, a checkpoint or any folder that the program ddl reads. `train` and `evaluate` do what `ddl train` and
`ddl eval` do. `Run` reads what a run recorded. What is wrong with an input is an `Error` with a sentence that says what to do.
"""

from __future__ import annotations

import json
import os
from typing import Any, Callable, Iterator, Mapping, Sequence, Union, overload

import numpy as np

from . import _core
from ._core import Error, __version__

__all__ = ["Error", "Model", "Run", "evaluate", "load", "metrics", "train", "__version__"]

Path = Union[str, "os.PathLike[str]"]
Tokens = Union[Sequence[int], np.ndarray]


def _tokens(tokens: Tokens) -> np.ndarray:
    """As int32; an array that is int32 already is used as it is."""
    array = np.asarray(tokens)
    if array.ndim != 1:
        raise Error(f"expected one sequence of tokens, found an array of shape {array.shape}")
    if array.size and array.dtype.kind not in "iu":
        raise Error(f"expected token numbers, found {array.dtype}")
    if array.size and (array.min() < 0 or array.max() > np.iinfo(np.int32).max):
        raise Error("a token number is negative or too large")
    return np.ascontiguousarray(array, dtype=np.int32)


class Model:
    """A trained model. `load` makes one."""

    def __init__(self, path: Path, *, precision: str = "", tokenizer: Path = "", threads: int = 0):
        self._core = _core.Model(os.fspath(path), precision, os.fspath(tokenizer), threads)

    def __repr__(self) -> str:
        return f"<deepdelta.Model {self.residual}, {self.parameters} parameters, {self.folder}>"

    @property
    def folder(self) -> str:
        """Where the weights came from: of a run, its newest checkpoint."""
        return self._core.folder

    @property
    def residual(self) -> str:
        """The residual rule, for example "ddl-cc"."""
        return self._core.residual

    @property
    def parameters(self) -> int:
        return self._core.parameters

    @property
    def vocabulary(self) -> int:
        return self._core.vocabulary

    @property
    def context(self) -> int:
        """The longest sequence, in tokens."""
        return self._core.context

    @property
    def sublayers(self) -> int:
        """Attention and MLP of every layer: two a layer."""
        return self._core.sublayers

    @property
    def end_of_text(self) -> int:
        """The token that begins and ends a document."""
        return self._core.end_of_text

    @property
    def config(self) -> dict[str, Any]:
        """Every option `model.*`."""
        options: dict[str, Any] = json.loads(self._core.config_json())
        return options

    def encode(self, text: str, *, begin: bool = True) -> np.ndarray:
        """The tokens of a text, int32. `begin` puts end of text in front, as a document begins in training."""
        return self._core.encode(text, begin)

    def decode(self, tokens: Tokens) -> str:
        """The text of tokens; bytes that are no UTF-8 become U+FFFD."""
        return self.decode_bytes(tokens).decode("utf-8", "replace")

    def decode_bytes(self, tokens: Tokens) -> bytes:
        return self._core.decode(_tokens(tokens))

    @overload
    def generate(
        self,
        prompt: str = "",
        *,
        count: None = None,
        max_new_tokens: int = 256,
        temperature: float = 0.8,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        seed: int = 0,
        stop: Sequence[str] = (),
        on_text: Callable[[str], None] | None = None,
    ) -> str: ...
    @overload
    def generate(
        self,
        prompt: str = "",
        *,
        count: int,
        max_new_tokens: int = 256,
        temperature: float = 0.8,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        seed: int = 0,
        stop: Sequence[str] = (),
        on_text: Callable[[str], None] | None = None,
    ) -> list[str]: ...
    def generate(
        self,
        prompt: str = "",
        *,
        count: int | None = None,
        max_new_tokens: int = 256,
        temperature: float = 0.8,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        seed: int = 0,
        stop: Sequence[str] = (),
        on_text: Callable[[str], None] | None = None,
    ) -> str | list[str]:
        """A text that continues the prompt; with `count`, a list of that many. `on_text` hears every piece as it comes.

        A temperature of 0 always takes the most likely token. The same seed gives the same text.
        """
        if count is not None and count < 1:
            raise Error(f"count: expected 1 or more, found {count}")
        if max_new_tokens < 0:
            raise Error(f"max_new_tokens: expected 0 or more, found {max_new_tokens}")
        texts = self._core.generate(
            prompt, 1 if count is None else count, max_new_tokens, temperature, top_k, top_p, min_p, repetition_penalty,
            seed, list(stop), on_text,
        )  # fmt: skip
        return texts[0] if count is None else texts

    def logprobs(self, tokens: Tokens | str) -> np.ndarray:
        """log p of tokens[1], tokens[2], ..., each given all before it: float64, one shorter than `tokens`.

        A text is encoded first, with end of text in front, so that each of its tokens gets a number. Sequences longer than
        the context are cut into windows as `ddl eval` cuts them.
        """
        return self._core.logprobs(self.encode(tokens) if isinstance(tokens, str) else _tokens(tokens))

    def next_logprobs(self, tokens: Tokens) -> np.ndarray:
        """[tokens, vocabulary], float32: behind every token the log-probability of all that may follow."""
        return self._core.next_logprobs(_tokens(tokens))

    def score(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[tuple[float, bool]]:
        """For (context, continuation) pairs: log p(continuation | context), and whether greedy decoding would give it.

        Beginnings that pairs share are computed once, so ask for many at a time. Contexts must not be empty.
        """
        return self._core.score([(list(map(int, context)), list(map(int, rest))) for context, rest in pairs])

    def trace(self, tokens: Tokens | str) -> dict[str, np.ndarray]:
        """What the residual rule did, token by token: one array per series of the rule, float32.

        "gate", "target", "readout", ... are [sublayers, tokens], or [sublayers, tokens, n] where a token has n numbers.
        "loss" is [tokens]: -log p of the token that follows; 0 for the last.
        """
        return self._core.trace(self.encode(tokens) if isinstance(tokens, str) else _tokens(tokens))


def load(path: Path, *, precision: str = "", tokenizer: Path = "", threads: int = 0) -> Model:
    """Opens a run (its newest checkpoint), a checkpoint, or a folder with config.json and weights.

    precision: "f32" or "bf16"; "" as it was trained. tokenizer: where the folder has none. threads: 0 is one per core.
    """
    return Model(path, precision=precision, tokenizer=tokenizer, threads=threads)


class Run:
    """What a run recorded, while it trains or afterwards."""

    def __init__(self, path: Path):
        self.path = os.fspath(path)

    def __repr__(self) -> str:
        return f"<deepdelta.Run {self.path}>"

    def metrics(self, columns: Sequence[str] = ()) -> dict[str, np.ndarray]:
        """Column by column, a row per step: "step" and, for example, "loss", "lr", "validation_loss", "gate_0".

        NaN where the run did not record a number at a step. `columns` chooses; without it, all.
        """
        table = metrics([self.path], columns)
        table.pop("run")
        return table

    def records(self, event: str | None = None) -> Iterator[dict[str, Any]]:
        """The records of metrics.jsonl one by one; only those of one kind ("step", "validation", "gates", ...) if named."""
        path = os.path.join(self.path, "metrics.jsonl")
        if not os.path.exists(path):
            raise Error(f"{path}: there is no such file; a run has it from its first step on")
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                if not line.endswith("\n"):
                    return  # it is being written
                record = json.loads(line)
                if event is None or record.get("event") == event:
                    yield record

    def model(self, **options: Any) -> Model:
        """The newest checkpoint."""
        return load(self.path, **options)


def metrics(paths: Sequence[Path], columns: Sequence[str] = ()) -> dict[str, Any]:
    """The same of several runs: "run" is a list of their names, every other column an array."""
    return _core.metrics([os.fspath(path) for path in paths], list(columns))


def _settings(options: Mapping[str, Any], within: str = "") -> Iterator[str]:
    for key, value in options.items():
        if isinstance(value, Mapping):
            yield from _settings(value, f"{within}{key}.")
        else:
            yield f"{within}{key}={str(value).lower() if isinstance(value, bool) else value}"


def train(
    config: Path | Mapping[str, Any],
    data: Path,
    out: Path,
    *,
    preset: str = "",
    resume: bool = False,
    threads: int = 0,
    on_record: Callable[[dict[str, Any]], None] | None = None,
) -> Run:
    """Trains as `ddl train` does and returns the run.

    config: a TOML file, or options as a dictionary: {"model.residual": "ddl-cc", "train": {"steps": 100}}. `on_record` hears
    every record as it is written. Ctrl-C saves a checkpoint and raises KeyboardInterrupt; `resume=True` goes on from there.
    """
    file, sets = ("", list(_settings(config))) if isinstance(config, Mapping) else (os.fspath(config), [])
    hear = None if on_record is None else (lambda line: on_record(json.loads(line)))
    folder, steps, stopped_by = _core.train(
        file, preset, os.fspath(data), os.fspath(out), sets, resume, threads, hear
    )
    if stopped_by:
        raise KeyboardInterrupt(f"{folder}: stopped at step {steps} and saved; train(..., resume=True) goes on")
    return Run(folder)


def evaluate(
    model: Model | Path, tasks: Sequence[str] | str, data: Path, *, shots: int = 0, limit: int = 0
) -> dict[str, Any]:
    """The numbers of `ddl eval`, which are those of lm-evaluation-harness. `data` has a folder for every task."""
    if not isinstance(model, Model):
        model = load(model)
    names = [tasks] if isinstance(tasks, str) else list(tasks)
    report: dict[str, Any] = json.loads(_core.evaluate(model._core, names, os.fspath(data), shots, limit))
    return report
