"""Deep Delta models in lm-evaluation-harness:

    python -m deepdelta.lm_eval --model deepdelta --model_args path=runs/stories --tasks piqa
"""

from __future__ import annotations

from typing import Any

from lm_eval.api.model import LM
from lm_eval.api.registry import register_model

import deepdelta


@register_model("deepdelta")
class DeepDeltaLM(LM):
    def __init__(self, path: str, tokenizer: str = "", precision: str = "", threads: int = 0, **kwargs: Any):
        super().__init__()
        self.model = deepdelta.load(path, tokenizer=tokenizer, precision=precision, threads=int(threads))

    @property
    def tokenizer_name(self) -> str:
        return self.model.folder

    def _pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """As the harness cuts a pair: spaces at the end of the context belong to the continuation, and the tokens of the whole
        decide where it begins."""
        if not context:
            return [self.model.end_of_text], self.model.encode(continuation, begin=False).tolist()
        spaces = len(context) - len(context.rstrip())
        if spaces:
            continuation = context[-spaces:] + continuation
            context = context[:-spaces]
        begun = self.model.encode(context, begin=False).tolist()
        whole = self.model.encode(context + continuation, begin=False).tolist()
        return begun or [self.model.end_of_text], whole[len(begun) :]

    def loglikelihood(self, requests, disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        return self.model.score([self._pair(*request.args) for request in requests])

    def loglikelihood_rolling(self, requests, disable_tqdm: bool = False) -> list[float]:
        return [float(self.model.logprobs(request.args[0]).sum()) for request in requests]

    def generate_until(self, requests, disable_tqdm: bool = False) -> list[str]:
        texts = []
        for request in requests:
            prompt, options = request.args
            stop = options.get("until") or []
            texts.append(
                self.model.generate(
                    prompt,
                    max_new_tokens=options.get("max_gen_toks", 256),
                    temperature=options.get("temperature", 0.0) if options.get("do_sample", False) else 0.0,
                    stop=[stop] if isinstance(stop, str) else stop,
                )
            )
        return texts


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()
