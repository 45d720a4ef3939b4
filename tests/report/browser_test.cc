// The page in a real browser: nothing in its console, no request, and every point where the numbers say. Needs
// chromium (apt-get install chromium), and is skipped without it.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <map>
#include <optional>
#include <sstream>

#include "report/every_block.h"
#include "report/page.h"
#include "report/picture.h"
#include "test_folder.h"

namespace ddl {
namespace {

struct Element {
  std::string name;
  std::map<std::string, std::string> attributes;
  std::string text;  // up to the next tag
  bool has(const std::string& key) const { return attributes.contains(key); }
  const std::string& at(const std::string& key) const { return attributes.at(key); }
  double number(const std::string& key) const { return std::stod(at(key)); }
};

std::string unescaped(std::string text) {
  for (const auto& [what, with] : {std::pair<std::string, std::string>{"&lt;", "<"},
                                   {"&gt;", ">"},
                                   {"&quot;", "\""},
                                   {"&nbsp;", "\u00a0"},
                                   {"&amp;", "&"}})
    for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size())
      text.replace(at, what.size(), with);
  return text;
}

// The tags of a document as a browser writes it: every attribute in double quotes. What scripts and styles hold is
// no tag.
std::vector<Element> elements_of(const std::string& dom) {
  std::vector<Element> elements;
  std::size_t at = 0;
  while ((at = dom.find('<', at)) != std::string::npos) {
    ++at;
    if (!std::isalpha(static_cast<unsigned char>(dom[at]))) continue;
    Element element;
    while (dom[at] != ' ' && dom[at] != '>' && dom[at] != '/') element.name += dom[at++];
    while (dom[at] != '>') {
      if (dom[at] == ' ' || dom[at] == '/') {
        ++at;
        continue;
      }
      const std::size_t equals = dom.find_first_of("= >", at);
      const std::string key = dom.substr(at, equals - at);
      at = equals;
      if (dom[at] != '=') {
        element.attributes[key] = "";
        continue;
      }
      const std::size_t end = dom.find('"', at + 2);
      element.attributes[key] = unescaped(dom.substr(at + 2, end - at - 2));
      at = end + 1;
    }
    ++at;
    if (element.name == "script" || element.name == "style")
      at = dom.find("</" + element.name, at);
    else
      element.text = unescaped(dom.substr(at, dom.find('<', at) - at));
    elements.push_back(std::move(element));
  }
  return elements;
}

// What the label of a tick says: "1.5 M".
double labelled(std::string label) {
  double factor = 1;
  if (label.starts_with("−")) label.replace(0, std::string("−").size(), "-");
  for (const auto& [letter, value] :
       {std::pair<char, double>{'k', 1e3}, {'M', 1e6}, {'G', 1e9}, {'T', 1e12}, {'P', 1e15}, {'E', 1e18}})
    if (label.back() == letter) factor = value;
  return std::stod(label) * factor;
}

class ReportInABrowser : public ::testing::Test {
 protected:
  struct Seen {
    std::vector<Element> elements;
    std::string console;   // what the page said there
    std::string requests;  // addresses beyond files
  };

  void SetUp() override {
    for (const char* name : {"chromium", "chromium-browser", "google-chrome"})
      if (browser_.empty() && std::system(("command -v " + std::string(name) + " > /dev/null").c_str()) == 0)
        browser_ = name;
    if (browser_.empty()) GTEST_SKIP() << "needs a browser: apt-get install chromium";
  }

  Seen open(const std::string& page, const std::string& fragment = "") {
    folder_.write("page.html", page);
    const std::string command = fmt::format(
        "cd {} && HOME=$PWD {} --headless{} --disable-gpu --no-first-run --disable-background-networking "
        "--disable-component-update"
        " --disable-sync --user-data-dir=$PWD/profile --log-net-log=$PWD/net.json --enable-logging=stderr "
        "--window-size=1000,800"
        " --virtual-time-budget=3000 --dump-dom \"file://$PWD/page.html{}\" > dom.html 2> messages",
        folder_.path(), browser_, ::geteuid() == 0 ? " --no-sandbox" : "", fragment);
    EXPECT_EQ(std::system(command.c_str()), 0) << contents_of(folder_ / "messages");
    Seen seen{elements_of(contents_of(folder_ / "dom.html")), "", ""};
    std::istringstream lines(contents_of(folder_ / "messages"));
    for (std::string line; std::getline(lines, line);)
      if (contains(line, "CONSOLE")) seen.console += line + "\n";
    const std::string net = contents_of(folder_ / "net.json");
    EXPECT_TRUE(contains(net, "\"events\"")) << "the browser keeps its log of requests";
    // The browser asks for updates and the time on its own, "initiator":"not an origin". The rest is the page's.
    for (std::size_t at = 0; (at = net.find("\"initiator\":\"", at)) != std::string::npos; ++at) {
      const std::string request = net.substr(at, net.find('\n', at) - at);
      if (!contains(request, "not an origin") && contains(request, "\"url\":\"http"))
        seen.requests += request + "\n";
    }
    return seen;
  }

  // The elements of the n-th chart.
  static std::vector<Element> chart(const Seen& seen, std::size_t n) {
    std::vector<Element> found;
    std::size_t charts = 0;
    for (const Element& element : seen.elements) {
      const bool begins = element.name == "svg" && element.has("class") && element.at("class") == "chart";
      charts += begins;
      if (charts == n + 1) found.push_back(element);
    }
    EXPECT_FALSE(found.empty()) << "chart " << n;
    return found;
  }

  static void expect_ticks(const std::vector<Element>& elements, const char* key, const char* coordinate,
                           const Scale& scale, double shift) {
    int ticks = 0;
    for (const Element& element : elements) {
      if (!element.has(key)) continue;
      ++ticks;
      EXPECT_TRUE(scale.shows(element.number(key), element.number(coordinate) + shift)) << element.at(key);
      EXPECT_NEAR(labelled(element.text), element.number(key), 1e-4 * std::abs(element.number(key)))
          << element.text;
    }
    EXPECT_GE(ticks, 2) << key;
  }

  static std::vector<Json> charts_of(const Json& document) {
    std::vector<Json> charts;
    for (const Json& section : document["sections"])
      for (const Json& block : section["blocks"])
        for (const char* kind : {"lines", "forest", "heat", "bars"})
          if (block["kind"] == kind) charts.push_back(block);
    return charts;
  }

  static void expect_lines(const Json& block, const std::vector<Element>& elements, const std::string& axis) {
    const Element& root = elements[0];
    ASSERT_EQ(root.at("data-axis"), axis);
    const Scale x(root.at("data-x")), y(root.at("data-y"));
    EXPECT_EQ(x.log, axis == "flops");
    expect_ticks(elements, "data-tick-x", "x", x, 0);
    expect_ticks(elements, "data-tick-y", "y", y, -4);
    for (std::size_t s = 0; s < block["series"].size(); ++s) {
      const Json& series = block["series"][s];
      std::vector<std::pair<double, double>> line, dots, band;
      for (const Element& element : elements) {
        if (element.has("data-series") && element.number("data-series") == static_cast<double>(s))
          line = points_of(element.at("d"));
        if (element.has("data-band") && element.number("data-band") == static_cast<double>(s))
          for (std::istringstream parts(element.at("d")); parts.good();) {
            std::string part;
            std::getline(parts, part, 'Z');
            const auto more = points_of(part);
            band.insert(band.end(), more.begin(), more.end());
          }
        if (element.has("data-point") && element.number("data-point") == static_cast<double>(s))
          dots.emplace_back(element.number("cx"), element.number("cy"));
      }
      std::vector<std::pair<double, double>> expected;
      for (std::size_t i = 0; i < series["y"].size(); ++i)
        if (!series["y"][i].is_null()) expected.emplace_back(series["x"][axis][i], series["y"][i]);
      const auto expect = [&](const std::vector<std::pair<double, double>>& drawn) {
        ASSERT_EQ(drawn.size(), expected.size()) << series["name"];
        for (std::size_t i = 0; i < drawn.size(); ++i) {
          EXPECT_TRUE(x.shows(expected[i].first, drawn[i].first))
              << s << " " << i << ": " << x.value_at(drawn[i].first);
          EXPECT_TRUE(y.shows(expected[i].second, drawn[i].second))
              << s << " " << i << ": " << y.value_at(drawn[i].second);
        }
      };
      if (series["style"] != "points") expect(line);
      if (series["y"].size() <= 30) expect(dots);
      if (!series.contains("lo")) {
        EXPECT_TRUE(band.empty());
        continue;
      }
      // Each stretch goes along the upper edge and back along the lower.
      std::size_t places = 0;
      for (const auto& [px, py] : band) {
        bool found = false;
        for (std::size_t i = 0; i < series["y"].size() && !found; ++i)
          found = !series["lo"][i].is_null() && x.shows(series["x"][axis][i], px) &&
                  (y.shows(series["lo"][i], py) || y.shows(series["hi"][i], py));
        EXPECT_TRUE(found) << px << "," << py;
        places += found;
      }
      EXPECT_EQ(places, 2 * (expected.size() - 1)) << "every place but the one that stands alone";
    }
  }

  static void expect_forest(const Json& block, const std::vector<Element>& elements) {
    const Scale x(elements[0].at("data-x"));
    expect_ticks(elements, "data-tick-x", "x", x, 0);
    std::vector<std::size_t> pairs(block["rows"].size());
    std::size_t means = 0, intervals = 0;
    for (const Element& element : elements) {
      if (element.has("data-mean")) {
        EXPECT_TRUE(x.shows(block["rows"][means]["mean"], element.number("cx")));
        ++means;
      }
      if (element.has("data-interval")) {
        ++intervals;
        const Json& row = block["rows"][std::stoul(element.at("data-interval"))];
        EXPECT_TRUE(x.shows(row["lo"], element.number("x1")) && x.shows(row["hi"], element.number("x2")));
      }
      if (element.has("data-pair")) {
        const std::size_t row = std::stoul(element.at("data-pair"));
        EXPECT_TRUE(x.shows(block["rows"][row]["points"][pairs[row]++], element.number("cx")));
      }
    }
    EXPECT_EQ(means, 2u);
    EXPECT_EQ(intervals, 1u);
    EXPECT_EQ(pairs, (std::vector<std::size_t>{3, 2}));
  }

  static void expect_bars(const Json& block, const std::vector<Element>& elements) {
    const Scale x(elements[0].at("data-x"));
    expect_ticks(elements, "data-tick-x", "x", x, 0);
    std::size_t bars = 0, whiskers = 0;
    for (const Element& element : elements) {
      if (element.has("data-bar")) {
        ++bars;
        const double value = block["rows"][std::stoul(element.at("data-bar"))]["value"];
        const double left = element.number("x"), right = left + element.number("width");
        EXPECT_TRUE(x.shows(value, element.number("data-end")));
        EXPECT_NEAR(value > 0 ? right : left, element.number("data-end"), 0.0101) << "it ends there";
        EXPECT_TRUE(x.shows(0, value > 0 ? left : right) ||
                    std::abs(x.value_at(value > 0 ? left : right)) < 1e-4)
            << "it begins at 0";
      }
      if (element.has("data-whisker")) {
        ++whiskers;
        const auto points = points_of(element.at("d"));
        const Json& row = block["rows"][std::stoul(element.at("data-whisker"))];
        EXPECT_TRUE(x.shows(row["lo"], points.at(0).first) && x.shows(row["hi"], points.at(1).first));
      }
    }
    EXPECT_EQ(bars, 2u);
    EXPECT_EQ(whiskers, 1u);
  }

  // Colours by their definition: from one to the other in equal steps; with a centre, two of them.
  static std::string heat_colour(const Json& block, double value, double low, double high) {
    using Colour = std::array<double, 3>;
    const auto mixed = [](const Colour& a, const Colour& b, double t) {
      std::string text = "rgb(";
      for (std::size_t i = 0; i < 3; ++i)
        text +=
            fmt::format("{}{}", i ? "," : "", static_cast<int>(std::floor(a[i] + (b[i] - a[i]) * t + 0.5)));
      return text + ")";
    };
    if (!block.contains("centre")) return mixed({240, 245, 250}, {6, 66, 122}, (value - low) / (high - low));
    const double centre = block["centre"], reach = std::max(high - centre, centre - low),
                 t = (value - centre) / reach;
    return t < 0 ? mixed({246, 246, 244}, {11, 98, 168}, -t) : mixed({246, 246, 244}, {194, 80, 10}, t);
  }

  static void expect_heat(const Json& block, const std::vector<Element>& elements) {
    double low = INFINITY, high = -INFINITY;
    for (const Json& row : block["values"])
      for (const Json& value : row)
        if (!value.is_null())
          low = std::min(low, value.get<double>()), high = std::max(high, value.get<double>());
    std::map<double, int> columns, rows;
    std::size_t cells = 0;
    for (std::size_t i = 0; i < elements.size(); ++i) {
      const Element& element = elements[i];
      if (!element.has("data-cell")) continue;
      ++cells;
      std::size_t r = 0, c = 0;
      std::istringstream(element.at("data-cell")) >> r >> c;
      columns.emplace(element.number("x"), c), rows.emplace(element.number("y"), r);
      const Json& value = block["values"][r][c];
      const std::string told = elements.at(i + 1).text, name = block["rows"][r], column = block["columns"][c];
      ASSERT_EQ(elements[i + 1].name, "title");
      EXPECT_EQ(told.find(name + ", " + column + ": "), 0u) << told;
      if (value.is_null()) {
        EXPECT_EQ(element.at("class"), "missing");
        continue;
      }
      EXPECT_EQ(std::stod(told.substr(told.rfind(' '))), value.get<double>());
      EXPECT_EQ(element.at("fill"), heat_colour(block, value, low, high)) << told;
    }
    EXPECT_EQ(cells, block["rows"].size() * block["columns"].size());
    int next = 0;
    for (const auto& [place, c] : columns) EXPECT_EQ(c, next++) << "columns from left to right";
    next = 0;
    for (const auto& [place, r] : rows) EXPECT_EQ(r, next++) << "rows from top to bottom";
  }

  std::string browser_;
  TestFolder folder_;
};

TEST_F(ReportInABrowser, EveryPointIsWhereItsNumberSays) {
  const Json document = every_block().json();
  const std::vector<Json> charts = charts_of(document);
  ASSERT_EQ(charts.size(), 5u);
  for (const std::string axis : {"tokens", "flops"}) {
    const Seen seen = open(report_page(document), "#theme=light&axis=" + axis);
    EXPECT_EQ(seen.console, "");
    EXPECT_EQ(seen.requests, "");
    expect_lines(charts[0], chart(seen, 0), axis);
    expect_forest(charts[1], chart(seen, 1));
    expect_heat(charts[2], chart(seen, 2));
    expect_heat(charts[3], chart(seen, 3));
    expect_bars(charts[4], chart(seen, 4));
  }
}

TEST_F(ReportInABrowser, NamesStayText) {
  const Json document = every_block().json();
  const Seen seen = open(report_page(document));
  std::map<std::string, int> by_name;
  std::string all_text;
  for (const Element& element : seen.elements) {
    ++by_name[element.name];
    all_text += element.text + "\n";
    for (const auto& [key, value] : element.attributes)
      EXPECT_FALSE(key.starts_with("on")) << element.name << " " << key;
    EXPECT_FALSE(element.has("class") && contains(element.at("class"), "broken")) << element.text;
  }
  EXPECT_EQ(by_name["img"], 0);
  EXPECT_EQ(by_name["script"], 2) << "the document and the page's own";
  EXPECT_EQ(by_name["h1"], 1);
  EXPECT_FALSE(contains(all_text, "taken over\n"));
  // As the reader sees them, letter for letter.
  for (const char* what :
       {"Every block ", "subtitle ", "Words ",  "text ",    "code ",  "item ", "warning ",
        "question ",    "answer ",   "detail ", "caption ", "name ",  "cell ", "lines ",
        "note ",        "many ",     "tokens ", "forest ",  "first ", "nats ", "centred heat ",
        "row ",         "column ",   "bars ",   "ratio ",   "bar "})
    EXPECT_TRUE(contains(all_text, what + kHostile)) << what;
  EXPECT_EQ(seen.console, "");
}

// A reader's hands: without the policy, which would stop this script, too.
TEST_F(ReportInABrowser, TheControlsWork) {
  std::string page = report_page(every_block().json());
  const std::size_t policy = page.find("<meta http-equiv=");
  page.erase(policy, page.find('>', policy) + 1 - policy);
  page.insert(page.find("</body>"), R"html(<script>
    const said = {};
    const figure = document.querySelector("figure");
    const plot = figure.querySelector(".plot");
    const readout = figure.querySelector(".readout");
    const chart = () => plot.querySelector("svg.chart");
    const press = (label) => [...figure.querySelectorAll("button")].find((b) => b.textContent === label).click();
    const point = (kind, share) => {
      const box = plot.getBoundingClientRect();
      plot.dispatchEvent(new PointerEvent(kind, { clientX: box.left + share * box.width, clientY: box.top + 60, pointerType: "mouse", button: 0 }));
    };
    said.before = readout.hidden;
    point("pointermove", 0.5);
    said.pointed = readout.hidden ? null : readout.textContent;
    point("pointerleave", 0);
    said.left = readout.hidden;
    for (const key of ["ArrowRight", "ArrowRight", "ArrowRight", "ArrowLeft"]) plot.dispatchEvent(new KeyboardEvent("keydown", { key }));
    said.second = readout.textContent;
    plot.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" }));
    said.escaped = readout.hidden;
    said.range = chart().dataset.x;
    point("pointerdown", 0.4); point("pointermove", 0.5); point("pointerup", 0.6);
    said.zoomed = chart().dataset.x;
    press("whole range");
    said.whole = chart().dataset.x;
    said.lines = chart().querySelectorAll("[data-series], [data-point]").length;
    press("pair");
    said.hidden = chart().querySelectorAll("[data-series], [data-point]").length;
    press("pair");
    said.again = chart().querySelectorAll("[data-series], [data-point]").length;
    press("FLOPs");
    said.axis = chart().dataset.axis;
    const theme = document.documentElement.dataset.theme;
    document.querySelector("button.theme").click();
    said.theme = [theme, document.documentElement.dataset.theme].sort().join(" ");
    figure.querySelector("details").open = true;
    const block = JSON.parse(document.getElementById("document").textContent).sections[1].blocks;
    said.pictures = block.map((b) => {
      const text = ddlFigure.standalone(b, { hidden: new Set(), zoom: null, axis: "tokens", theme: "light" });
      const root = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
      const colours = new Set([...root.querySelectorAll("[fill]")].map((e) => e.getAttribute("fill")));
      return [root.nodeName, root.textContent.includes(b.title.slice(0, 20)), root.querySelectorAll("[class]").length, colours.size > 2].join(" ");
    });
    setTimeout(() => {
      said.rows = figure.querySelectorAll("details tbody tr").length;
      const out = document.createElement("output");
      out.textContent = JSON.stringify(said);
      document.body.append(out);
    }, 100);
  </script>)html");
  const Seen seen = open(page, "#theme=light");
  EXPECT_EQ(seen.console, "");
  Json said;
  for (const Element& element : seen.elements)
    if (element.name == "output") said = parse_json(element.text);
  ASSERT_TRUE(said.is_object());
  EXPECT_EQ(said["before"], true);
  const std::string pointed = said["pointed"].is_string() ? said["pointed"] : "";
  EXPECT_EQ(pointed.find("tokens "), 0u) << pointed;
  EXPECT_TRUE(contains(pointed, "many ")) << pointed;
  EXPECT_EQ(said["left"], true);
  EXPECT_TRUE(contains(said["second"].get<std::string>(), "32.77 k"))
      << "the second of the longest series: " << said["second"];
  EXPECT_TRUE(contains(said["second"].get<std::string>(), "5.51 (5.41 to 5.71)")) << said["second"];
  EXPECT_EQ(said["escaped"], true);
  const Scale range(said["range"]), zoomed(said["zoomed"]);
  EXPECT_GT(zoomed.low, range.low + 0.2 * (range.high - range.low));
  EXPECT_LT(zoomed.high, range.high - 0.2 * (range.high - range.low));
  EXPECT_EQ(said["whole"], said["range"]);
  EXPECT_EQ(said["lines"], 8) << "two lines, and dots: one alone, three and two";
  EXPECT_EQ(said["hidden"], 2);
  EXPECT_EQ(said["again"], 8);
  EXPECT_EQ(said["axis"], "flops");
  EXPECT_EQ(said["theme"], "dark light");
  EXPECT_EQ(said["rows"], 65) << "every point of the chart";
  EXPECT_EQ(to_line(said["pictures"]),
            R"(["svg true 0 true","svg true 0 true","svg true 0 true","svg true 0 true","svg true 0 true"])");
}

// What the tests above look for would be found.
TEST_F(ReportInABrowser, AScriptOfOthersIsStoppedAndARequestIsSeen) {
  std::string page = report_page(every_block().json());
  page.insert(page.find("</main>"), "<script>document.title = 'taken over'</script><p id=\"foreign\">in</p>");
  const Seen stopped = open(page);
  EXPECT_TRUE(contains(stopped.console, "Content Security Policy")) << stopped.console;
  for (const Element& element : stopped.elements)
    EXPECT_FALSE(element.name == "title" && element.text == "taken over");
  const Seen asked =
      open("<!doctype html><img src=\"http://127.0.0.1:9/x\"><script>console.error('said')</script>");
  EXPECT_TRUE(contains(asked.requests, "http://127.0.0.1:9/x")) << asked.requests;
  EXPECT_TRUE(contains(asked.console, "said")) << asked.console;
}

}  // namespace
}  // namespace ddl
