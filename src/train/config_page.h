// docs/configuration.md: every option, from the lists that the program itself uses.
#pragma once

#include <string>

namespace ddl {

// Markdown. Written by `ddl train --options --markdown`; a test compares it with the page.
std::string config_page();

}  // namespace ddl
