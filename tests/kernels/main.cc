// CTest runs this program once per instruction set (DDL_ISA). A level that the machine lacks is skipped.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "kernels/isa.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const auto available = ddl::available_isas();
  if (const char* wanted = std::getenv("DDL_ISA"))
    if (std::find(available.begin(), available.end(), wanted) == available.end()) {
      std::printf("skipped: this machine has no %s\n", wanted);
      return 77;
    }
  std::printf("instruction set: %s\n", ddl::current_isa().c_str());
  return RUN_ALL_TESTS();
}
