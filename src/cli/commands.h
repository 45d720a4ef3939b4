// One function per command; each lives in its own file and adds itself to the program.
#pragma once

namespace CLI {
class App;
}

namespace ddl {

void add_tokenizer_command(CLI::App& app);
void add_data_command(CLI::App& app);
void add_info_command(CLI::App& app);
void add_bench_command(CLI::App& app);
void add_all_commands(CLI::App& app);

}  // namespace ddl
