// The files of src/report/page, in the program. Written by cmake/embed_files.cmake.
#pragma once

#include <string_view>

namespace ddl::page_files {

extern const std::string_view kPageHtml, kStyleCss, kChartsJs, kFigureJs, kReportJs;

}  // namespace ddl::page_files
