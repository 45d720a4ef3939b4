"""LangChain against a running `ddl serve`. By hand:

    pip install langchain-openai
    python tools/serving/langchain_check.py http://127.0.0.1:8080/v1
"""
import sys

from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings
from openai import OpenAI as Client

base = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080/v1"
model = Client(base_url=base, api_key="unused").models.list().data[0].id
same = dict(base_url=base, api_key="unused", model=model, temperature=0.8, seed=7, max_retries=0)

llm = OpenAI(**same, max_tokens=20)
text = llm.invoke("Once upon a time")
assert "".join(llm.stream("Once upon a time")) == text, "the stream has another text"
assert llm.batch(["Once upon a time"] * 4) == [text] * 4, "side by side the text is another one"
print("OpenAI:", repr(text))

chat = ChatOpenAI(**same, max_completion_tokens=12)
answer = chat.invoke([("system", "Tell a story."), ("human", "Hello")])
assert answer.usage_metadata["output_tokens"] > 0
streamed = "".join(chunk.content for chunk in chat.stream([("system", "Tell a story."), ("human", "Hello")]))
assert streamed == answer.content, (streamed, answer.content)
print("ChatOpenAI:", repr(answer.content))

embeddings = OpenAIEmbeddings(base_url=base, api_key="unused", model=model, check_embedding_ctx_length=False)
vectors = embeddings.embed_documents(["one", "two"])
assert len(vectors) == 2 and len(vectors[0]) == len(vectors[1])
print("OpenAIEmbeddings:", len(vectors[0]), "numbers each")
