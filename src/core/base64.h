// Base64 (RFC 4648, with padding).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ddl {

std::string encode_base64(std::string_view bytes);
std::optional<std::string> decode_base64(std::string_view text);  // nothing where it is none

}  // namespace ddl
