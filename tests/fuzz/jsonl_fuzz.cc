// The JSON Lines scanner: any bytes give a row or a UserError, and it accepts what the JSON library accepts.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/json.h"
#include "data/json_row.h"
#include "fuzz/driver.h"

std::vector<std::string> fuzz_seeds() {
  return {R"({"text":"hello \u00e9 \ud83d\ude00 \n","id":17})",
          R"({"answers":[[0,1],[2,3]],"text":"a?3","x":{"y":[null,true,false,-1.5e+3]}})",
          "{\"text\":\"first\",\"text\":\"second \xff\xfe\",\"deep\":[[[[{}]]]]}"};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view line(reinterpret_cast<const char*>(data), size);
  ddl::JsonRow row;
  bool accepted = true;
  try {
    ddl::parse_json_row(line, "text", row);
  } catch (const ddl::UserError&) {
    accepted = false;
  }
  if (row.answers.size() > line.size()) std::abort();
  const auto json = ddl::parse_json(line);
  if (json.is_object() && json.contains("text") && json["text"].is_string()) {
    if (!accepted || row.text != json["text"].get_ref<const std::string&>()) std::abort();
  }
  return 0;
}
