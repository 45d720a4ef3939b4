// The page in a real browser: nothing in its console, no request to another address, curves that grow with their run, and
// numbers that are the server's own. Needs chromium (apt-get install chromium), and is skipped without it.
#include "serve/browser.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "report/picture.h"
#include "serve/report_testing.h"

namespace ddl {
namespace {

double loss_at(Index step) { return 4 + 3 / std::sqrt(static_cast<double>(step)) + 0.1 * std::sin(step); }

std::string step_line(Index step) {
  const double s = static_cast<double>(step);
  return to_line(Json{{"v", 1},
                      {"event", "step"},
                      {"step", step},
                      {"loss", loss_at(step)},
                      {"grad_norm", 1 / s},
                      {"lr", 0.001},
                      {"tokens", 4096 * s},
                      {"flops", 1e9 * s},
                      {"elapsed_s", 0.5 * s},
                      {"tokens_per_s", 8192}}) +
         "\n";
}

// Greedy text is printable: the rows of other bytes are 0, and some logit is larger.
Weights printable_weights(std::uint64_t seed) {
  Weights weights = small_weights("ddl-cc", seed);
  for (const Param& p : weights.table().list())
    if (p.name == "transformer.wte.weight")
      for (Index row = 0; row < p.shape[0]; ++row)
        if (row < ' ' || row > '~')
          for (Index c = 0; c < p.shape[1]; ++c) weights.values()[p.offset + row * p.shape[1] + c] = 0;
  weights.update_copy(Exec{});
  return weights;
}

class PageInABrowser : public ServerTest {
 protected:
  void SetUp() override {
    if (Browser::program().empty()) GTEST_SKIP() << "needs a browser: apt-get install chromium";
  }
  void TearDown() override {
    if (!browser_) return;
    std::string complaints, foreign;
    for (const std::string& each : browser_->complaints()) complaints += each + "\n";
    for (const std::string& each : browser_->requests())
      if (!each.starts_with(server_->address() + "/") && each != "about:blank") foreign += each + "\n";
    EXPECT_EQ(complaints, "");
    EXPECT_EQ(foreign, "");
    EXPECT_FALSE(browser_->requests().empty()) << "requests are seen";
  }

  void write_run(const std::string& name, Index steps) {
    const Json config{{"model", {{"residual", "ddl-cc"}}},
                      {"train", {{"steps", 1000}, {"seed", 1}, {"lr", 0.001}}}};
    std::string text = to_line(Json{{"v", 1}, {"event", "start"}, {"step", 0}, {"config", config}}) + "\n";
    for (Index step = 1; step <= steps; ++step) text += step_line(step);
    folder_.write("runs/" + name + "/metrics.jsonl", text);
  }
  void start_with_runs() {
    std::filesystem::create_directories(folder_ / "runs");
    options_.watch = {folder_ / "runs"};
    start_without_model();
  }
  Browser& open(const std::string& fragment) {
    std::filesystem::create_directories(folder_ / "profile");
    if (!browser_) browser_ = std::make_unique<Browser>(folder_ / "profile");
    browser_->open("about:blank");
    browser_->open(server_->address() + "/" + fragment);
    return *browser_;
  }

  // The curve of the only run in the chart of this title: {x, y, d}.
  static std::string curve(const std::string& title) {
    return fmt::format(
        "(() => {{ const figure = [...document.querySelectorAll('figure')].find((f) => "
        "f.querySelector('h3').textContent === '{}');"
        "const chart = figure?.querySelector('svg.chart'); const line = "
        "chart?.querySelector('[data-series]');"
        "return line ? {{ x: chart.dataset.x, y: chart.dataset.y, d: line.getAttribute('d') }} : null; "
        "}})()",
        title);
  }
  static void expect_losses(const Json& curve, Index steps) {
    ASSERT_TRUE(curve.is_object());
    const Scale x(curve["x"]), y(curve["y"]);
    const auto points = points_of(curve["d"]);
    ASSERT_EQ(std::ssize(points), steps);
    for (Index i = 0; i < steps; ++i) {
      EXPECT_TRUE(x.shows(static_cast<double>(i + 1), points[i].first)) << i;
      EXPECT_TRUE(y.shows(loss_at(i + 1), points[i].second)) << i;
    }
  }

  void type_prompt(const std::string& prompt) {
    browser_->evaluate(
        fmt::format("(() => {{ const t = document.querySelector('textarea'); t.value = {}; "
                    "t.dispatchEvent(new Event('input')); }})()",
                    to_line(Json(prompt))));
  }
  void press(const std::string& label) {
    browser_->evaluate(fmt::format(
        "[...document.querySelectorAll('button')].find((b) => b.textContent === '{}').click()", label));
  }
  void set_number(int index, const std::string& value) {
    browser_->evaluate(fmt::format(
        "(() => {{ const i = document.querySelectorAll('input[type=number]')[{}]; i.value = '{}'; "
        "i.dispatchEvent(new Event('input')); }})()",
        index, value));
  }
  // [[row, column, value], ...] of the heat map's cells, from the words that a reader is told.
  Json cells() {
    return browser_->evaluate(
        "[...document.querySelectorAll('.gate-map [data-cell]')].map((c) => [...c.dataset.cell.split(' "
        "').map(Number), "
        "Number(c.querySelector('title').textContent.split(': ').at(-1))])");
  }
  void expect_cells(const Json& trace) {
    const Json cells = this->cells();
    const std::size_t sublayers = trace["sublayers"].size(), tokens = trace["tokens"].size();
    ASSERT_EQ(cells.size(), sublayers * tokens);
    for (const Json& cell : cells) {
      const Json& values = trace["sublayers"][cell[0].get<std::size_t>()]["series"]["gate"]["values"];
      EXPECT_EQ(cell[2].get<double>(), values[cell[1].get<std::size_t>()].get<double>()) << to_line(cell);
    }
  }
  Json trace(const Json& request) {
    const Reply answer = post("/v1/ddl/trace", request);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json();
  }

  std::unique_ptr<Browser> browser_;
};

TEST_F(PageInABrowser, CurvesGrowWhileARunTrains) {
  write_run("mine", 20);
  start_with_runs();
  Browser& browser = open("#view=runs&run=mine&x=step&smooth=0");
  ASSERT_TRUE(browser.until(curve("Training loss")));
  expect_losses(browser.evaluate(curve("Training loss")), 20);
  {
    std::ofstream more(folder_ / "runs/mine/metrics.jsonl", std::ios::app);
    for (Index step = 21; step <= 30; ++step) more << step_line(step);
    more << Json{{"v", 1}, {"event", "validation"}, {"step", 30}, {"loss", 4.5}, {"tokens", 122880}}.dump()
         << "\n";
  }
  ASSERT_TRUE(browser.until(curve("Training loss") + "?.d.split('L').length === 30"));
  expect_losses(browser.evaluate(curve("Training loss")), 30);
  EXPECT_TRUE(browser.until(curve("Validation loss"))) << "a chart that was not there before";
  bool only_new = false;
  for (const std::string& request : browser.requests()) only_new = only_new || contains(request, "after=19");
  EXPECT_TRUE(only_new) << "what is known is not sent again";
  // Begun anew: the curve is that of the new records.
  std::filesystem::remove(folder_ / "runs/mine/metrics.jsonl");
  write_run("mine", 7);
  ASSERT_TRUE(browser.until(curve("Training loss") + "?.d.split('L').length === 7"));
  expect_losses(browser.evaluate(curve("Training loss")), 7);
}

TEST_F(PageInABrowser, HeatMapCellsAreTheTrace) {
  start();
  Browser& browser = open("#view=playground");
  ASSERT_TRUE(browser.until("document.querySelector('textarea')"));
  type_prompt("A stream of <b>tokens</b>");
  press("Only read the prompt");
  ASSERT_TRUE(browser.until("document.querySelector('.gate-map [data-cell]')"));
  const Json free = trace({{"model", "m"}, {"prompt", "A stream of <b>tokens</b>"}});
  expect_cells(free);
  // A click shows the write behind a cell, every digit of it.
  browser.evaluate(
      "document.querySelector('[data-cell=\"2 5\"]').dispatchEvent(new MouseEvent('click', {bubbles: "
      "true}))");
  const Json rows = browser.evaluate(
      "[...document.querySelectorAll('.write-detail tbody')][0] && "
      "[...document.querySelectorAll('.write-detail tbody')][0]"
      ".innerText && [...[...document.querySelectorAll('.write-detail tbody')][0].rows].map((row) => "
      "[...row.cells].slice(1).map((cell) => Number(cell.title)))");
  const Json& series = free["sublayers"][2]["series"];
  const double gate = series["gate"]["values"][5];
  ASSERT_EQ(rows.size(), series["readout"]["values"][5].size());
  for (std::size_t d = 0; d < rows.size(); ++d) {
    const double r = series["readout"]["values"][5][d], v = series["target"]["values"][5][d];
    EXPECT_EQ(rows[d][0].get<double>(), r);
    EXPECT_EQ(rows[d][1].get<double>(), v);
    EXPECT_EQ(rows[d][2].get<double>(), v - r);
    EXPECT_NEAR(rows[d][3].get<double>(), (1 - gate) * (v - r), 1e-12 * (std::abs(v) + std::abs(r)));
  }
  // The arrow keys go from write to write.
  browser.evaluate("document.querySelector('.gate-map .plot').focus()");
  browser.press("ArrowDown");
  EXPECT_TRUE(
      contains(browser.evaluate("document.querySelector('.write-detail h3').textContent").get<std::string>(),
               "3 mlp"));
  // A clamp: the gate of that sublayer is the same everywhere, and what comes after it differs.
  browser.evaluate("document.querySelector('.gate-map select').value = '1'");
  press("2");
  ASSERT_TRUE(
      browser.until("document.querySelector('[data-cell=\"1 0\"] title').textContent.endsWith(': 2')"));
  const Json clamped = trace({{"model", "m"},
                              {"prompt", "A stream of <b>tokens</b>"},
                              {"clamp", {{"sublayer", 1}, {"series", "gate"}, {"value", 2}}}});
  expect_cells(clamped);
  EXPECT_NE(to_line(free["sublayers"][3]), to_line(clamped["sublayers"][3]));
  press("free");
  ASSERT_TRUE(
      browser.until("!document.querySelector('[data-cell=\"1 0\"] title').textContent.endsWith(': 2')"));
  expect_cells(free);
}

TEST_F(PageInABrowser, WritesTheServersTextAndComparesTwoModels) {
  options_.models.paths.push_back(write_model(folder_ / "n", printable_weights(2)));
  start(printable_weights(1));
  Browser& browser = open("#view=playground");
  ASSERT_TRUE(browser.until("document.querySelectorAll('select option').length === 5"));
  type_prompt("It was <i>");
  browser.evaluate(
      "(() => { const [a, b] = document.querySelectorAll('select'); a.value = 'm'; b.value = 'n';"
      "for (const each of [a, b]) each.dispatchEvent(new Event('change')); })()");
  set_number(0, "20");
  set_number(1, "0");
  press("Write");
  ASSERT_TRUE(
      browser.until("[...document.querySelectorAll('.text-column > .note')].filter((p) => "
                    "p.textContent.startsWith('Blue')).length === 2"));
  const Json shown = browser.evaluate(
      "[...document.querySelectorAll('.strip')].map((strip) => "
      "[...strip.querySelectorAll('.token:not(.start)')].map((t) => "
      "t.getAttribute('aria-label').split(', probability')[0]).join(''))");
  const auto completion = [&](const char* model, bool echo, const std::string& prompt) {
    Json request{{"model", model}, {"prompt", prompt}, {"temperature", 0}, {"logprobs", 5}, {"echo", echo}};
    request["max_tokens"] = echo ? 0 : 20;
    const Reply answer = post("/v1/completions", request);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json()["choices"][0];
  };
  const std::vector<const char*> models = {"m", "n"};
  ASSERT_EQ(shown.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    const std::string text =
        "It was <i>" + completion(models[i], false, "It was <i>")["text"].get<std::string>();
    EXPECT_EQ(shown[i], text) << models[i];
    // The card of the twelfth token: its five best, and the difference between the models.
    const Json card = browser.evaluate(
        fmt::format("(() => {{ const pane = document.querySelectorAll('.pane')[{}]; "
                    "pane.querySelectorAll('.token')[12].focus();"
                    "return {{ words: [...pane.querySelectorAll('.card .word')].map((w) => w.textContent), "
                    "note: pane.querySelector('.card .note').textContent }}; }})()",
                    i));
    const Json own = completion(models[i], true, text)["logprobs"],
               other = completion(models[1 - i], true, text)["logprobs"];
    EXPECT_GE(card["words"].size(), 5u);
    for (const Json& word : card["words"]) {
      std::string token = word;
      if (token == "·") token = " ";
      EXPECT_TRUE(own["top_logprobs"][11].contains(token)) << token;
    }
    const double difference =
        own["token_logprobs"][11].get<double>() - other["token_logprobs"][11].get<double>();
    EXPECT_TRUE(contains(
        card["note"].get<std::string>(),
        fmt::format("{}{:.2f} against {}", difference > 0 ? "+" : "−", std::abs(difference), models[1 - i])))
        << card["note"] << " " << difference;
  }
}

TEST_F(PageInABrowser, KeysCheckpointsBranchesAndStop) {
  write_checkpoint(folder_ / "r", 10, printable_weights(1));
  write_checkpoint(folder_ / "r", 20, printable_weights(2));
  options_.models.paths.push_back(folder_ / "r");
  start_without_model();
  const auto greedy = [&](const char* model, const std::string& prompt) {
    const Json request{{"model", model}, {"prompt", prompt}, {"temperature", 0}, {"max_tokens", 12}};
    return prompt + post("/v1/completions", request).json()["choices"][0]["text"].get<std::string>();
  };
  const char* const shown =
      "[...document.querySelectorAll('.strip .token:not(.start)')].map((t) => "
      "t.getAttribute('aria-label').split(', probability')[0]).join('')";
  // Until it has been written and read.
  const auto shows = [&](const std::string& text) {
    return browser_->until(
        fmt::format("document.querySelector('.primary').textContent === 'Write' && "
                    "document.querySelector('.gate-map [data-cell]') && {} === {}",
                    shown, to_line(Json(text))));
  };
  Browser& browser = open("#view=playground");
  ASSERT_TRUE(browser.until("document.querySelector('textarea')"));
  type_prompt("It was");
  set_number(0, "12");
  set_number(1, "0");
  browser.evaluate("document.querySelector('textarea').focus()");
  browser.press("Enter", Browser::kControl);
  ASSERT_TRUE(shows(greedy("r", "It was"))) << browser.evaluate(shown);

  // An older checkpoint writes on its own account.
  const std::string older = greedy("r@10", "It was");
  ASSERT_NE(older, greedy("r", "It was"));
  browser.evaluate(
      "(() => { const r = document.querySelector('input[type=range]'); r.value = 0;"
      "for (const e of ['input', 'change']) r.dispatchEvent(new Event(e)); })()");
  ASSERT_TRUE(shows(older)) << browser.evaluate(shown);
  EXPECT_TRUE(contains(browser.evaluate("document.querySelector('.pane h2').textContent").get<std::string>(),
                       "step 10"));

  // Another token in the place of the tenth: the text goes on from there.
  const std::string branch = browser.evaluate(
      "(() => { document.querySelectorAll('.token:not(.start)')[9].focus(); "
      "const other = [...document.querySelectorAll('.card button')].find((b) => "
      "!b.classList.contains('actual')); const word = other.querySelector('.word').textContent; "
      "other.click(); return word; })()");
  const std::string prompt = older.substr(0, 9) + (branch == "·" ? " " : branch);
  EXPECT_EQ(browser.evaluate("document.querySelector('textarea').value"), prompt);
  ASSERT_TRUE(shows(greedy("r@10", prompt))) << browser.evaluate(shown);

  // Stopped before a token came: the prompt is read, and the server's place is free.
  browser.evaluate(
      "(() => { const go = document.querySelector('.primary'); go.click(); "
      "if (go.textContent !== 'Stop') throw new Error(go.textContent); go.click(); })()");
  ASSERT_TRUE(shows(prompt)) << browser.evaluate(shown);
  EXPECT_TRUE(all_free());
}

// Work that begins while older work still waits for an answer has the pane to itself.
TEST_F(PageInABrowser, AnOlderReadingDoesNotReplaceANewerText) {
  write_checkpoint(folder_ / "r", 10, printable_weights(1));
  write_checkpoint(folder_ / "r", 20, printable_weights(2));
  options_.models.paths.push_back(folder_ / "r");
  start_without_model();
  Browser& browser = open("#view=playground");
  ASSERT_TRUE(browser.until("document.querySelector('textarea')"));
  type_prompt("It was");
  set_number(0, "12");
  set_number(1, "0");
  browser.evaluate(
      "(() => { const ask = window.fetch; let first = true; window.fetch = async (path, options) => { "
      "if (first && path === '/v1/ddl/trace') { first = false; "
      "await new Promise((go) => (window.release = go)); } return ask(path, options); }; })()");
  press("Write");
  ASSERT_TRUE(browser.until("window.release")) << "it is written, and being read";
  browser.evaluate(
      "(() => { const r = document.querySelector('input[type=range]'); r.value = 0;"
      "for (const e of ['input', 'change']) r.dispatchEvent(new Event(e)); })()");
  const Json request{{"model", "r@10"}, {"prompt", "It was"}, {"temperature", 0}, {"max_tokens", 12}};
  const std::string text =
      "It was" + post("/v1/completions", request).json()["choices"][0]["text"].get<std::string>();
  const std::string shown = fmt::format(
      "document.querySelector('.primary').textContent === 'Write' && "
      "[...document.querySelectorAll('.strip .token:not(.start)')].map((t) => "
      "t.getAttribute('aria-label').split(', probability')[0]).join('') === {}",
      to_line(Json(text)));
  ASSERT_TRUE(browser.until(shown));
  browser.evaluate("(async () => { release(); await new Promise((r) => setTimeout(r, 500)); })()");
  EXPECT_EQ(browser.evaluate(shown), true);
}

TEST_F(PageInABrowser, ATextThatFillsTheContextIsRead) {
  start(printable_weights(1));
  Browser& browser = open("#view=playground");
  ASSERT_TRUE(browser.until("document.querySelector('textarea')"));
  type_prompt(std::string(80, 'a'));
  set_number(0, "200");
  set_number(1, "0");
  press("Write");
  ASSERT_TRUE(browser.until("document.querySelector('.gate-map [data-cell]')"));
  EXPECT_EQ(cells().size(), 4u * 96) << "as many tokens as the context holds";
  EXPECT_TRUE(contains(browser.evaluate("document.querySelector('.facts').textContent").get<std::string>(),
                       "not read: the last token"));
  browser.evaluate("document.querySelector('.gate-map select').value = '1'");
  press("2");
  EXPECT_TRUE(
      browser.until("document.querySelector('[data-cell=\"1 0\"] title').textContent.endsWith(': 2')"));
}

// Tokens that are parts of characters have names that are not their text.
TEST_F(PageInABrowser, ABranchIsTextOrIsRefused) {
  start();
  Browser& browser = open("#view=playground");
  ASSERT_TRUE(browser.until("document.querySelector('textarea')"));
  type_prompt("h\u00e9llo");
  set_number(0, "1");
  press("Only read the prompt");
  ASSERT_TRUE(browser.until("document.querySelector('.gate-map [data-cell]')"));
  const auto branch_at = [&](int token) {  // with the token that is there
    browser.evaluate(
        fmt::format("document.querySelectorAll('.token:not(.start)')[{}].focus(); "
                    "document.querySelector('.card button.actual').click()",
                    token));
    return browser.evaluate("document.querySelector('textarea').value");
  };
  EXPECT_EQ(branch_at(1), "h\u00e9llo") << "half of a character is no prompt";
  EXPECT_TRUE(browser.until("document.body.textContent.includes('a part of a character')"));
  EXPECT_EQ(branch_at(3), "h\u00e9l");
}

TEST_F(PageInABrowser, StudiesAndAuditsAreListedWithTheirReports) {
  folder_.write("runs/erasing/study.toml", study_text());
  folder_.write("runs/mine/audit.json", small_audit());
  start_with_runs();
  Browser& browser = open("#view=reports");
  ASSERT_TRUE(browser.until("document.querySelectorAll('.report-list a').length === 2"));
  const Json links = browser.evaluate("[...document.querySelectorAll('.report-list a')].map((a) => a.href)");
  for (const Json& link : links) {
    open(link.get<std::string>().substr(server_->address().size() + 1));
    EXPECT_TRUE(browser.until("document.querySelector('h1')")) << link;
  }
}

TEST_F(PageInABrowser, NamesAreTextInEveryViewThemeAndWidth) {
  const std::string name = "<img src=x onerror=alert(1)>";
  write_run(name, 12);
  write_run("folder/another", 12);
  options_.models.paths.push_back(write_model(folder_ / "m", small_weights()));
  start_with_runs();
  for (const char* view : {"runs", "playground", "reports"})
    for (const char* theme : {"light", "dark"}) {
      Browser& browser = open("");
      browser.theme(theme);
      browser.size(360, 740);
      open(std::string("#view=") + view);
      const char* there =
          std::string(view) == "runs"      ? "document.querySelectorAll('figure svg.chart').length >= 4"
          : std::string(view) == "reports" ? "document.querySelectorAll('.report-list li').length === 2"
                                           : "document.querySelector('textarea')";
      ASSERT_TRUE(browser.until(there)) << view;
      EXPECT_EQ(browser.evaluate("document.documentElement.dataset.theme"), theme);
      EXPECT_LE(browser.evaluate("document.documentElement.scrollWidth").get<int>(), 360) << view;
      EXPECT_EQ(browser.evaluate("document.images.length"), 0);
      if (std::string(view) != "playground") {
        EXPECT_EQ(browser.evaluate(fmt::format("document.querySelector('main').textContent.includes({})",
                                               to_line(Json(name)))),
                  true)
            << view;
      }
    }
  const Json link = browser_->evaluate("document.querySelector('.report-list a').href");
  open(link.get<std::string>().substr(server_->address().size() + 1));
  EXPECT_TRUE(browser_->until("document.querySelector('h1')")) << "a report opens";
}

// What the tests above look for would be found.
TEST_F(PageInABrowser, AForeignRequestAndAnErrorAreSeen) {
  start_with_runs();
  open("#view=runs");
  browser_->evaluate("console.error('said')");
  browser_->evaluate("fetch('http://127.0.0.1:9/x').catch(() => 0)");
  browser_->evaluate(
      "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.taken = "
      "1'}))");
  EXPECT_EQ(browser_->evaluate("window.taken ?? 0"), 0)
      << "the page's policy stops scripts that are not its own";
  std::string complaints;
  for (const std::string& each : browser_->complaints()) complaints += each;
  EXPECT_TRUE(contains(complaints, "said"));
  EXPECT_TRUE(contains(complaints, "http://127.0.0.1:9/x")) << "the policy stops requests to others";
  browser_->open("about:blank");
  browser_->evaluate(
      "(async () => { new Image().src = 'http://127.0.0.1:9/y'; await new Promise((r) => setTimeout(r, "
      "300)); })()");
  bool seen = false;
  for (const std::string& each : browser_->requests()) seen = seen || contains(each, "127.0.0.1:9/y");
  EXPECT_TRUE(seen);
  browser_.reset();
}

}  // namespace
}  // namespace ddl
