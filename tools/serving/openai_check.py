"""The openai package against a running `ddl serve`: sync, async, streaming, errors. By hand:

    pip install openai
    ./ddl serve RUN --port 8080 &
    python tools/serving/openai_check.py http://127.0.0.1:8080/v1

Prints one line per check and ends with 1 where one failed.
"""
import asyncio
import math
import sys

import openai
from openai import AsyncOpenAI, OpenAI

base = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080/v1"
client = OpenAI(base_url=base, api_key="unused", max_retries=0)
model = client.models.list().data[0].id
failures = 0


def check(name, good, detail=""):
    global failures
    failures += not good
    print(f"{'ok  ' if good else 'FAIL'} {name} {detail}")


def fails(name, error, code, param, call):
    try:
        call()
        check(name, False, "no error")
    except error as e:
        body = e.body or {}
        check(name, (body.get("code"), body.get("param")) == (code, param), f"{type(e).__name__}: {e.message[:90]}")


print(f"openai {openai.__version__}, model {model}")
same = dict(model=model, prompt="Once upon a time", max_tokens=24, temperature=0.8, seed=7)
whole = client.completions.create(**same)
text = whole.choices[0].text
check("completion", whole.object == "text_completion" and whole.usage.completion_tokens > 0, repr(text[:40]))
check("the same seed, the same text", client.completions.create(**same).choices[0].text == text)

parts = list(client.completions.create(**same, stream=True, stream_options={"include_usage": True}))
check("stream", "".join(p.choices[0].text for p in parts if p.choices) == text, f"{len(parts)} chunks")
check("usage at the end of the stream", parts[-1].usage == whole.usage and not parts[-1].choices)

scored = client.completions.create(model=model, prompt="Once upon", max_tokens=1, logprobs=3, echo=True, temperature=0)
lists = scored.choices[0].logprobs
check("echo with logprobs", len(lists.tokens) == len(lists.token_logprobs) == len(lists.top_logprobs), str(lists.tokens))
check("logprobs are logarithms", all(x is None or x <= 0 for x in lists.token_logprobs))

many = client.completions.create(model=model, prompt=["One", "Two"], n=3, max_tokens=5, seed=1)
check("n and several prompts", [c.index for c in many.choices] == list(range(6)))
stopped = client.completions.create(**{**same, "stop": text[3:6]})
check("stop", stopped.choices[0].text == text[: text.find(text[3:6])] and stopped.choices[0].finish_reason == "stop")

messages = [{"role": "system", "content": "Tell a story."}, {"role": "user", "content": "Hello"}]
chat = client.chat.completions.create(model=model, messages=messages, max_completion_tokens=12, seed=1, logprobs=True, top_logprobs=2)
check("chat", chat.choices[0].message.role == "assistant", repr(chat.choices[0].message.content))
check("chat logprobs", len(chat.choices[0].logprobs.content[0].top_logprobs) == 2)
with client.chat.completions.create(model=model, messages=messages, max_completion_tokens=12, seed=1, stream=True) as stream:
    streamed = "".join(c.choices[0].delta.content or "" for c in stream)
check("chat stream", streamed == chat.choices[0].message.content)

packed = client.embeddings.create(model=model, input=["one", "two"])
floats = client.embeddings.create(model=model, input=["one", "two"], encoding_format="float")
check("embeddings, base64 and floats", [d.embedding for d in packed.data] == [d.embedding for d in floats.data])
check("embeddings have length 1", abs(math.fsum(x * x for x in packed.data[0].embedding) - 1) < 1e-5)

fails("unknown model", openai.NotFoundError, "model_not_found", "model", lambda: client.completions.create(model="gpt-4", prompt="x"))
fails("context", openai.BadRequestError, "context_length_exceeded", "prompt", lambda: client.completions.create(model=model, prompt="word " * 20000))
fails("wrong value", openai.BadRequestError, "invalid_value", "temperature", lambda: client.completions.create(model=model, prompt="x", temperature=9))
fails("unsupported", openai.BadRequestError, "unsupported_parameter", "suffix", lambda: client.completions.create(model=model, prompt="x", suffix="y"))
fails("tools", openai.BadRequestError, "unsupported_parameter", "tools", lambda: client.chat.completions.create(
    model=model, messages=messages, tools=[{"type": "function", "function": {"name": "f", "parameters": {}}}]))


async def concurrently():
    several = AsyncOpenAI(base_url=base, api_key="unused", max_retries=0)
    texts = await asyncio.gather(*(several.completions.create(**{**same, "seed": 7 + i % 2}) for i in range(16)))
    check("async, 16 at a time: a text is a function of its request", all(t.choices[0].text == text for t in texts[::2]))
    stream = await several.completions.create(**same, stream=True)
    check("async stream", "".join([p.choices[0].text async for p in stream]) == text)
    left = await several.completions.create(**{**same, "max_tokens": 200}, stream=True)
    async for _ in left:
        break
    await left.close()
    check("after a client that left", (await several.completions.create(**same)).choices[0].text == text)


asyncio.run(concurrently())
sys.exit(failures > 0)
