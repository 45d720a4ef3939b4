#include "report/metrics_table.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/json.h"
#include "test_folder.h"

namespace ddl {
namespace {

struct MetricsTableTest : ::testing::Test {
  TestFolder folder;
  MetricsTableTest() {
    // Interrupted after step 2 and repeated from there; the last line is being written.
    folder.write("runs/a/metrics.jsonl",
                 R"({"v":1,"event":"start","step":0,"parameters":5}
{"v":1,"event":"step","step":1,"loss":5.5,"lr":0.1}
{"v":1,"event":"step","step":2,"loss":5.25,"lr":0.1}
{"v":1,"event":"resume","step":1}
{"v":1,"event":"step","step":2,"loss":5.125,"lr":0.2}
{"v":1,"event":"validation","step":2,"loss":4.5,"best":true}
{"v":1,"event":"gates","step":2,"sublayers":[{"series":{"gate":{"mean":1.5}}},{"series":{"other":{"mean":2}}}]}
not a record
{"v":1,"event":"step","step":3,"loss":null,"lr":0.3}
{"v":1,"event":"step","st)");
    folder.write("runs/b,c/metrics.jsonl", "{\"v\":1,\"event\":\"step\",\"step\":1,\"loss\":0.1}\n");
  }
};

TEST_F(MetricsTableTest, HasEveryNumberOnce) {
  const MetricsTable table = metrics_table({folder / "runs"}, {});
  EXPECT_EQ(table.columns, (std::vector<std::string>{"loss", "lr", "validation_loss", "gate_0"}));
  EXPECT_EQ(to_csv(table),
            "run,step,loss,lr,validation_loss,gate_0\n"
            "a,1,5.5,0.1,,\n"
            "a,2,5.125,0.2,4.5,1.5\n"
            "a,3,,0.3,,\n"
            "\"b,c\",1,0.1,,,\n");
}

TEST_F(MetricsTableTest, QuotesInNamesAreDoubled) {
  folder.write("odd/a\"b/metrics.jsonl", "{\"v\":1,\"event\":\"step\",\"step\":1,\"loss\":0.5}\n");
  const std::string csv = to_csv(metrics_table({folder / "odd"}, {}));
  EXPECT_EQ(csv, "run,step,loss\n\"a\"\"b\",1,0.5\n");
}

TEST_F(MetricsTableTest, HasTheColumnsThatAreAskedFor) {
  const MetricsTable table = metrics_table({folder / "runs"}, {"validation_loss", "loss"});
  EXPECT_EQ(to_json_lines(table),
            "{\"run\":\"a\",\"step\":1,\"loss\":5.5}\n"
            "{\"run\":\"a\",\"step\":2,\"validation_loss\":4.5,\"loss\":5.125}\n"
            "{\"run\":\"b,c\",\"step\":1,\"loss\":0.1}\n")
      << "step 3 has none of them";
  EXPECT_EQ(to_screen(metrics_table({folder / "runs/a"}, {"lr"})),
            "run  step   lr\n"
            "a       1  0.1\n"
            "a       2  0.2\n"
            "a       3  0.3\n");
}

TEST_F(MetricsTableTest, LeavesOutWhatWasAbandoned) {
  const auto record = [](const char* event, int step, double loss) {
    return to_line(Json{{"v", 1}, {"event", event}, {"step", step}, {"loss", loss}}) + "\n";
  };
  const std::string first =
      record("step", 1, 5) + record("step", 2, 4) + record("validation", 2, 4.5) + record("step", 3, 3);
  const std::string resumed = record("resume", 1, 0), again = record("step", 2, 40);
  for (const std::string& text : {first + resumed + again, first + again}) {
    folder.write("back/r/metrics.jsonl", text);
    EXPECT_EQ(to_json_lines(metrics_table({folder / "back"}, {})),
              "{\"run\":\"r\",\"step\":1,\"loss\":5.0}\n"
              "{\"run\":\"r\",\"step\":2,\"loss\":40.0}\n")
        << text;
  }
  folder.write("back/r/metrics.jsonl", first + resumed);
  EXPECT_EQ(metrics_table({folder / "back"}, {}).rows.size(), 1u) << "nothing was repeated yet";
}

TEST_F(MetricsTableTest, NamesTheNearestColumn) {
  const std::string found = message_of<UserError>([&] { metrics_table({folder / "runs"}, {"los"}); });
  EXPECT_NE(found.find("no run has a column 'los'"), found.npos) << found;
  EXPECT_NE(found.find("nearest: loss"), found.npos) << found;
}

}  // namespace
}  // namespace ddl
