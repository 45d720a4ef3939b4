#include "report/page.h"

#include <gtest/gtest.h>

#include "core/embedded_file.h"
#include "io/sha256.h"
#include "report/every_block.h"
#include "report/page_files.h"
#include "test_folder.h"

namespace ddl {
namespace {

std::string between(const std::string& text, const std::string& begin, const std::string& end) {
  const std::size_t from = text.find(begin) + begin.size();
  return text.substr(from, text.find(end, from) - from);
}

const std::string kDataBegin = R"(<script type="application/json" id="document">)";

TEST(ReportPage, HoldsTheDocumentUnchanged) {
  const Json document = every_block().json();
  const std::string page = report_page(document);
  EXPECT_EQ(parse_json(between(page, kDataBegin, "</script>")), document);
}

TEST(ReportPage, NamesFromDataCannotLeaveIt) {
  const std::string page = report_page(every_block().json());
  const std::string data = between(page, kDataBegin, "</script>");
  for (const char* part : {"<", ">", "&", "\u2028"}) EXPECT_FALSE(contains(data, part)) << part;
  EXPECT_TRUE(contains(data, R"(\u003c/script\u003e\u003cimg)")) << "it is there, in other letters";
  EXPECT_FALSE(contains(page, "<img"));
  const std::string title = between(page, "<title>", "</title>");
  EXPECT_TRUE(contains(title, "&lt;/script&gt;&lt;img src=&quot;")) << title;
  EXPECT_TRUE(contains(title, "{{script}}")) << "text of the data is not a place of the page";
}

TEST(ReportPage, IsOneFileThatMayAskForNothing) {
  const std::string page = report_page(every_block().json());
  const std::string policy = between(page, "Content-Security-Policy\" content=\"", "\"");
  EXPECT_EQ(policy.find("default-src 'none'; script-src 'sha256-"), 0u) << policy;
  EXPECT_FALSE(contains(policy, "unsafe")) << policy;
  for (const char* part : {"<link", " src=\"", "@import", "url(", "import(", "fetch(", "XMLHttpRequest",
                           "eval(", "innerHTML", "document.write"})
    EXPECT_FALSE(contains(page.substr(0, page.find(kDataBegin)) + page.substr(page.rfind("<script>")), part))
        << part;
}

// echo -n abc | openssl dgst -sha256 -binary | base64, and so on: 32 bytes end in one '='.
TEST(ReportPage, ThePolicyNamesItsScriptAndStyleByHash) {
  const std::string page = report_page(every_block().json());
  const auto base64_of = [](const std::string& text) {  // by the definition: bits in groups of six
    const std::string hex = sha256_hex(text),
                      letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string bits, result;
    for (const char digit : hex)
      for (int bit = 3; bit >= 0; --bit)
        bits += (std::string("0123456789abcdef").find(digit) >> bit & 1) ? '1' : '0';
    while (bits.size() % 6 != 0) bits += '0';
    for (std::size_t i = 0; i < bits.size(); i += 6)
      result += letters[std::stoul(bits.substr(i, 6), nullptr, 2)];
    return "'sha256-" + result + "='";
  };
  const std::string policy = between(page, "Content-Security-Policy\" content=\"", "\"");
  EXPECT_TRUE(contains(policy, "script-src " + base64_of(between(page, "<script>", "</script>")) + ";"))
      << policy;
  EXPECT_TRUE(contains(policy, "style-src " + base64_of(between(page, "<style>", "</style>")) + ";"))
      << policy;
}

TEST(ReportPage, TheProgramHoldsTheFilesOfThePage) {
  const std::string folder = DDL_SOURCE_DIR "/src/report/page/";
  for (const char* name : {"page.html", "style.css", "charts.js", "figure.js", "report.js"}) {
    const EmbeddedFile* file = find_embedded(kReportPageFiles, name);
    ASSERT_TRUE(file) << name;
    EXPECT_EQ(file->content, contents_of(folder + name));
    if (file->name.ends_with(".js")) {
      EXPECT_FALSE(contains(file->content, "</script"));
    }
  }
}

}  // namespace
}  // namespace ddl
