#include "train/handshake.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ddl {
namespace {

std::string what_failed(const std::exception_ptr& failed) {
  if (!failed) return "";
  try {
    std::rethrow_exception(failed);
  } catch (const std::exception& error) {
    return error.what();
  }
}

// "\n  train.lr: 0.001 on rank 0, 0.002 on rank 1" for every leaf that differs.
void list_differences(const Json& first, const Json& other, const std::string& name, int rank,
                      std::string& text) {
  if (first == other) return;
  if (first.is_object() && other.is_object()) {
    Json keys = first;
    keys.update(other);
    for (const auto& [key, value] : keys.items())
      list_differences(first.value(key, Json()), other.value(key, Json()),
                       name.empty() ? key : name + "." + key, rank, text);
    return;
  }
  text += fmt::format("\n  {}: {} on rank 0, {} on rank {}", name, to_line(first), to_line(other), rank);
}

}  // namespace

void fail_on_all(const Comm& comm, const std::string& message) {
  if (comm.leads()) throw UserError("{}", message);
  throw SharedError("{}", message);
}

void check_ranks(const RunConfig& config, int ranks) {
  const Index accumulate = config.train.accumulate, batch = config.train.batch;
  if (accumulate % ranks == 0) return;
  std::vector<std::string> possible;
  for (Index n = 1; n <= accumulate && std::ssize(possible) < 12; ++n)
    if (accumulate % n == 0) possible.push_back(std::to_string(n));
  const bool halves = batch % ranks == 0 && accumulate == 1;
  throw UserError(
      "{} ranks share out the {} micro-batch{} of a step (train.accumulate) evenly: expected {} rank{}{}",
      ranks, accumulate, accumulate == 1 ? "" : "es", fmt::join(possible, " or "), accumulate == 1 ? "" : "s",
      halves
          ? fmt::format("; a new run with the same batches: --set train.batch={} --set train.accumulate={}",
                        batch / ranks, ranks)
          : "");
}

void agree_to_begin(Comm& comm, const Json& mine, const std::exception_ptr& failed) {
  if (comm.alone()) {
    if (failed) std::rethrow_exception(failed);
    return;
  }
  const std::vector<std::string> said =
      comm.gather_texts(to_line(Json{{"error", what_failed(failed)}, {"what", failed ? Json() : mine}}));
  if (failed && comm.leads()) std::rethrow_exception(failed);
  std::vector<Json> all;
  for (const std::string& text : said) all.push_back(parse_json(text));
  std::string errors, differences;
  for (int r = 0; r < comm.ranks(); ++r)
    if (const std::string error = all[r]["error"].get<std::string>(); !error.empty())
      errors += fmt::format("{}rank {}: {}", errors.empty() ? "" : "\n", r, error);
  if (!errors.empty()) fail_on_all(comm, errors);
  for (int r = 1; r < comm.ranks(); ++r) list_differences(all[0]["what"], all[r]["what"], "", r, differences);
  if (!differences.empty())
    fail_on_all(comm, "the ranks would not compute the same run:" + differences +
                          "\nStart all of them with the same program, options and data.");
}

Backend agree_on_backend(Comm& comm, const RankPlace& mine) {
  std::vector<RankPlace> places;
  for (const std::string& said :
       comm.gather_texts(to_line(Json{{"machine", mine.machine}, {"gpu", mine.gpu}}))) {
    const Json place = parse_json(said);
    places.push_back({place["machine"].get<std::string>(), place["gpu"].get<std::string>()});
  }
  try {
    return choose_backend(places);
  } catch (const UserError& error) {
    fail_on_all(comm, error.what());
  }
}

void check_same_weights(Comm& comm, const Weights& weights) {
  if (comm.alone()) return;
  std::uint64_t hash = 14695981039346656037u;
  const auto add = [&](std::uint64_t number) { hash = (hash ^ number) * 1099511628211u; };
  for (const float value : weights.values()) add(std::bit_cast<std::uint32_t>(value));
  if (weights.packed())
    for (const std::byte byte : weights.packed()->bytes()) add(std::to_integer<std::uint64_t>(byte));
  const std::vector<std::string> hashes = comm.gather_texts(fmt::format("{:016x}", hash));
  for (int r = 1; r < comm.ranks(); ++r)
    if (hashes[r] != hashes[0])
      fail_on_all(comm, fmt::format("rank {} has other weights than rank 0 ({} and {}): its files or its "
                                    "processor's arithmetic differ",
                                    r, hashes[r], hashes[0]));
}

}  // namespace ddl
