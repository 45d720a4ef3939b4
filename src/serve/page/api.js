// Questions to the server that sent this page. No other address is ever asked.

export class ServerError extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status; // 0: it does not answer
  }
}

async function ask(path, options) {
  let answer;
  try {
    answer = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError("The server does not answer. Has it been stopped?");
  }
  if (answer.ok) return answer;
  let message = `The server answered with status ${answer.status}.`;
  try {
    message = (await answer.json()).error.message;
  } catch {
    // an error without our form, from a proxy perhaps
  }
  throw new ServerError(message, answer.status);
}

const posted = (body, signal) => ({ method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal });

export const getJson = async (path, signal) => (await ask(path, { signal })).json();
export const postJson = async (path, body, signal) => (await ask(path, posted(body, signal))).json();

// The events of a stream, "data: {json}\n\n" each, until "data: [DONE]".
export async function* postStream(path, body, signal) {
  const reader = (await ask(path, posted({ ...body, stream: true }, signal))).body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new ServerError("The server ended the stream early.");
    held += value;
    for (let end; (end = held.indexOf("\n\n")) >= 0; ) {
      const event = held.slice(0, end);
      held = held.slice(end + 2);
      if (!event.startsWith("data: ")) continue;
      const data = event.slice("data: ".length);
      if (data === "[DONE]") return;
      const json = JSON.parse(data);
      if (json.error) throw new ServerError(json.error.message);
      yield json;
    }
  }
}

export const listRuns = async (signal) => (await getJson("/api/runs", signal)).runs;
export const listModels = async (signal) => (await getJson("/v1/models", signal)).data;
const pathOf = (name) => name.split("/").map(encodeURIComponent).join("/");
export const getRun = (name, { after, points }, signal) =>
  getJson(`/api/runs/${pathOf(name)}?points=${points}${after === undefined ? "" : `&after=${after}`}`, signal);
export const reportAddress = (names) => `/report?${new URLSearchParams(names.map((name) => ["run", name]))}`;
