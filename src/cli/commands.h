// One function per command; each lives in its own file and adds itself to the program.
#pragma once

namespace CLI {
class App;
}

namespace ddl {

void add_demo_command(CLI::App& app);
void add_tokenizer_command(CLI::App& app);
void add_data_command(CLI::App& app);
void add_train_command(CLI::App& app);
void add_generate_command(CLI::App& app);
void add_export_command(CLI::App& app);
void add_import_command(CLI::App& app);
void add_info_command(CLI::App& app);
void add_bench_command(CLI::App& app);
void add_all_commands(CLI::App& app);

}  // namespace ddl
