#include "cli/commands.h"

namespace ddl {

// In the order in which a person needs them; this is also the order of the help.
void add_all_commands(Command app) {
  add_demo_command(app);
  add_tokenizer_command(app);
  add_data_command(app);
  add_train_command(app);
  add_generate_command(app);
  add_eval_command(app);
  add_score_command(app);
  add_audit_command(app);
  add_export_command(app);
  add_import_command(app);
  add_quantize_command(app);
  add_study_command(app);
  add_report_command(app);
  add_metrics_command(app);
  add_serve_command(app);
  add_watch_command(app);
  add_info_command(app);
  add_plan_command(app);
  add_bench_command(app);
  add_doctor_command(app);
  add_version_command(app);
  add_completion_command(app);
}

}  // namespace ddl
