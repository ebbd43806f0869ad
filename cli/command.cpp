#include "cli/command.h"

#include <fmt/format.h>
#include <langinfo.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>

namespace nanscope::cli {

namespace {

constexpr int kWidth = 100;

/// Of standard output, which is one for the program.
int first_error = 0;

bool set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

int terminal_width() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kWidth;
  return std::clamp<int>(size.ws_col, 60, 140);
}

}  // namespace

CLI::Option* add_format(CLI::App& app, std::string& format, const std::vector<std::string>& allowed) {
  return app.add_option("--format", format, "How to print")->check(CLI::IsMember(allowed))->capture_default_str();
}

CLI::Option* add_follow_links(CLI::App& app, bool& follow_links) {
  return app.add_flag("--follow-links", follow_links,
                      "Of a dump, read files out of its folder that links in it lead to, too");
}

report::Terminal output_terminal() {
  report::Terminal terminal;
  std::setlocale(LC_CTYPE, "");
  terminal.utf8 = std::string_view(nl_langinfo(CODESET)) == "UTF-8";
  const bool interactive = isatty(STDOUT_FILENO) == 1;
  const char* term = std::getenv("TERM");
  terminal.color = interactive && !set("NO_COLOR") && !(term && std::string_view(term) == "dumb");
  terminal.width = interactive ? terminal_width() : kWidth;
  terminal.program = program_invocation_name;  // build/nanscope, where that was typed
  return terminal;
}

int complain(std::string_view message, std::string_view who) {
  const std::string line = fmt::format("{}: {}\n", who, error_line(message, output_terminal().charset()));
  std::fwrite(line.data(), 1, line.size(), stderr);
  return kBadInput;
}

void print(std::string_view text) {
  // Documents are UTF-8 wherever they go; texts for an ASCII terminal are ASCII already.
  const std::string safe = safe_lines(text, Charset::utf8, output_terminal().color);
  if (std::fwrite(safe.data(), 1, safe.size(), stdout) != safe.size() && first_error == 0) first_error = errno;
}

int output_error() { return first_error; }

}  // namespace nanscope::cli
