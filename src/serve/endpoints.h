// What the server answers. Each function adds the routes of its own file; docs/serving.md describes them.
#pragma once

#include <functional>

#include "serve/compute_thread.h"
#include "serve/model_shelf.h"
#include "serve/router.h"
#include "serve/run_shelf.h"

namespace ddl {

void add_page(Router& router);                   // GET /, and the files that the page names
void add_runs(Router& router, RunShelf& shelf);  // GET /api/runs, /api/runs/NAME, /api/reports, /report

void add_completions(Router& router, ModelShelf& models, ComputeThread& compute);
void add_chat(Router& router, ModelShelf& models, ComputeThread& compute);
void add_embeddings(Router& router, ModelShelf& models, ComputeThread& compute);
void add_trace(Router& router, ModelShelf& models, ComputeThread& compute);
void add_tokenize(Router& router, ModelShelf& models);
void add_models(Router& router, ModelShelf& models, ComputeThread& compute, std::function<int()> connections);

// JSON as an answer.
void send_json(const HttpReplyPtr& reply, const Json& json);
// Throws ApiError 429 where too many wait.
void submit_or_refuse(ComputeThread& compute, ComputeJob job);

}  // namespace ddl
