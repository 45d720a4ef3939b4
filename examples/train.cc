// Trains a small model for a few steps and lets it speak:   train DATA RUN
// DATA is a dataset made by `ddl data prepare`.
#include <ddl/ddl.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: train DATA RUN\n", stderr);
    return 2;
  }
  try {
    ddl::TrainSettings settings{.data = argv[1], .out = argv[2]};
    settings.set = {"train.steps=20", "train.batch=2",  "model.layers=1",  "model.width=32",
                    "model.heads=2",  "eval.windows=4", "log.floor=false", "model.residual=ddl-dv1"};
    int records = 0;
    const ddl::TrainedRun run = ddl::train_model(settings, [&](std::string_view) { ++records; });
    std::printf("%lld steps, %d records, %s\n", static_cast<long long>(run.steps), records,
                run.folder.c_str());
    std::printf("%s\n", ddl::Model(run.folder).generate("The", {.max_new_tokens = 20}).text.c_str());
  } catch (const ddl::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
