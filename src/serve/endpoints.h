// What the server answers. Each function adds the routes of its own file; docs/serving.md describes them.
#pragma once

#include "serve/router.h"
#include "serve/run_shelf.h"

namespace ddl {

void add_page(Router& router);                   // GET /, and the files that the page names
void add_runs(Router& router, RunShelf& shelf);  // GET /api/runs, /api/runs/NAME, /api/reports, /report

// JSON as an answer.
void send_json(const HttpReplyPtr& reply, const Json& json);

}  // namespace ddl
