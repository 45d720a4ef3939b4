// The worked example of docs/add-a-residual.md: x <- x + a_s h, with a learned strength a_s per sublayer.
#pragma once

namespace ddl {

void register_example_rule();  // as "example-strength"

}  // namespace ddl
