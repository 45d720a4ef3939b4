#include "cli/engine_options.h"

#include "core/error.h"
#include "model/engine.h"

namespace ddl {

void add_engine_options(Command command, std::string& engine, std::string& device) {
  command.add_option("--engine", engine, "What computes: native, torch, or the slow reference")
      .one_of(engine_names());
  command.add_option("--device", device, "Of the torch engine: cpu, cuda, cuda:N, or auto");
}

void use_engine_options(std::string& engine, const std::string& device) {
  if (device.empty()) return;
  choose_device(device);
  if (engine.empty()) engine = "torch";
  if (engine != "torch")
    throw UserError("--device {}: the engine '{}' computes on the CPU; --engine torch can choose", device,
                    engine);
}

}  // namespace ddl
