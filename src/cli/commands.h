// One function per command; each lives in its own file and adds itself to the program.
#pragma once

#include "cli/command_line.h"

namespace ddl {

void add_demo_command(Command app);
void add_tokenizer_command(Command app);
void add_data_command(Command app);
void add_train_command(Command app);
void add_generate_command(Command app);
void add_eval_command(Command app);
void add_score_command(Command app);
void add_audit_command(Command app);
void add_export_command(Command app);
void add_import_command(Command app);
void add_quantize_command(Command app);
void add_study_command(Command app);
void add_report_command(Command app);
void add_metrics_command(Command app);
void add_serve_command(Command app);
void add_watch_command(Command app);
void add_info_command(Command app);
void add_plan_command(Command app);
void add_bench_command(Command app);
void add_doctor_command(Command app);
void add_version_command(Command app);
void add_completion_command(Command app);
void add_all_commands(Command app);

}  // namespace ddl
