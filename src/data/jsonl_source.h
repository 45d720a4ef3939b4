// JSON Lines from a stream of which `first` has been read already.
#pragma once

#include <memory>
#include <string>

#include "data/document_source.h"

namespace ddl {

std::unique_ptr<DocumentSource> open_jsonl_stream(std::unique_ptr<ByteStream> stream, std::string first,
                                                  const CorpusOptions& options, BadRows& bad);

}  // namespace ddl
