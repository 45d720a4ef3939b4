// Published data that experiments use: where it comes from, its licence and size, how it is fetched and checked.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "core/json.h"

namespace ddl {

// One thing to download.
struct PublishedFile {
  std::string url;
  std::string path;         // where it goes, below the set's folder; for an archive, where it waits
  std::uint64_t bytes = 0;  // exact where there is a hash, otherwise about; 0: not known here
  std::string sha256 = "";  // "": not known here
  // A zip archive: what is taken out of it, and where that goes. The archive itself does not stay.
  struct Member {
    std::string name, path;
  };
  std::vector<Member> members = {};
};

struct PublishedSet {
  std::string name, what;
  std::string licence;  // as its publisher states it; "": not stated, or not known here
  std::string home;
  std::string folder;  // where it goes by default
  std::vector<PublishedFile> files;
  std::string next;  // what to do with it, where {0} is the folder

  std::uint64_t bytes() const;  // of all downloads, as far as known
  std::string terms() const;    // the licence, or where to look for it
};

const std::vector<PublishedSet>& published_sets();
// Throws UserError, naming the nearest. "tasks" is all evaluation tasks.
std::vector<PublishedSet> find_published(const std::string& name);

// What is there of a set: a record with "files", each with "path" and "status": "there", "there, hash matches",
// "absent" or "differs" (another size or hash than published).
Json check_published(const PublishedSet& set, const std::string& folder);

// Downloads what is absent with curl or wget, continues what was interrupted, checks, and takes archives apart.
// What is there already and is not as published is left alone and is an error. Notices go to `progress` (may be
// null). DDL_DATA_MIRROR replaces "https:/" at the beginning of every address. Throws UserError.
void fetch_published(const PublishedSet& set, const std::string& folder, std::FILE* progress);

}  // namespace ddl
