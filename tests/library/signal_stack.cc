// While the library computes, the thread has a stack for signals:   signal_stack MODEL
#include <ddl/ddl.h>
#include <signal.h>

static bool has_stack() {
  stack_t now{};
  return sigaltstack(nullptr, &now) == 0 && (now.ss_flags & SS_DISABLE) == 0;
}

int main(int argc, char** argv) {
  if (argc != 2 || has_stack()) return 3;
  const ddl::Model model(argv[1]);
  bool inside = false;
  model.generate("Once", {.max_new_tokens = 5}, [&](std::string_view) { inside = has_stack(); });
  return inside && !has_stack() ? 0 : 1;
}
