#include "cli/command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <langinfo.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "instrument/files/near_names.h"

namespace nanscope::cli {

namespace {

constexpr int kWidth = 100;
constexpr int kNarrowest = 60;
constexpr int kWidest = 140;

/// errno of the first failed write to standard output; 0: none.
int first_error = 0;

bool set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

/// In columns: COLUMNS if it is a number, else the terminal's width.
int output_width(bool interactive) {
  int width = 0;
  const char* named = std::getenv("COLUMNS");
  const std::string_view said = named != nullptr ? named : "";
  const auto [end, wrong] = std::from_chars(said.data(), said.data() + said.size(), width);
  const bool understood = wrong == std::errc() && end == said.data() + said.size() && width > 0;
  winsize size{};
  if (!understood && interactive && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) width = size.ws_col;
  return width > 0 ? std::clamp(width, kNarrowest, kWidest) : kWidth;
}

}  // namespace

void complain_unread(const std::string& target, const Diagnosis& diagnosis) {
  const auto files = static_cast<std::size_t>(std::count_if(diagnosis.notes.begin(), diagnosis.notes.end(),
                                                            [](const RunNote& note) { return note.is_unread(); }));
  if (diagnosis.unread.size() <= files) return;
  const UnreadPart& first = diagnosis.unread.front();
  const std::size_t others = diagnosis.unread.size() - files - 1;
  complain(fmt::format("{}: {} could not be read: {}{}", target, first.name, first.text,
                       others > 0 ? fmt::format("; and {} more", others) : ""));
}

int code_of(const Diagnosis& diagnosis) {
  switch (diagnosis.verdict()) {
    case Verdict::fault:
      return kFound;
    case Verdict::damaged:
      return kBadInput;
    case Verdict::nothing_to_judge:
      return kNotJudged;
    case Verdict::no_fault_found:
      return diagnosis.completeness.interrupted ? kNotJudged : kClean;
    case Verdict::clean:
      break;
  }
  return kClean;
}

CLI::Option* add_format(CLI::App& app, std::string& format, const std::vector<std::string>& allowed) {
  return app.add_option("--format", format, fmt::format("Output format: {}", fmt::join(allowed, ", ")))
      ->type_name("NAME")
      ->check(
          [allowed](const std::string& typed) -> std::string {
            if (std::find(allowed.begin(), allowed.end(), typed) != allowed.end()) return {};
            return fmt::format("'{}' is not one of {}{}", typed, fmt::join(allowed, ", "),
                               nearest(typed, allowed) != nullptr ? did_you_mean(typed, allowed) : "");
          },
          fmt::format("{{{}}}", fmt::join(allowed, ",")))  // completions and the manual parse this
      ->capture_default_str();
}

CLI::Option* add_follow_links(CLI::App& app, bool& follow_links) {
  return app.add_flag("--follow-links", follow_links,
                      "In a dump, also follow symbolic links that lead out of its folder");
}

CLI::Option* add_dump_model(CLI::App& app, std::string& model) {
  return app
      .add_option("--model", model,
                  "For a dump: the folder of the served checkpoint. Its weights are used, and its config.json says how "
                  "the model computes its ops")
      ->type_name("DIR");
}

namespace {

/// A locale that is not installed, or that there is no memory for, is known by its name.
bool locale_is_utf8() {
  if (std::setlocale(LC_CTYPE, "") != nullptr) return std::string_view(nl_langinfo(CODESET)) == "UTF-8";
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0') return ::strcasestr(value, "utf-8") || ::strcasestr(value, "utf8");
  }
  return false;
}

}  // namespace

report::Terminal output_terminal() {
  report::Terminal terminal;
  terminal.utf8 = locale_is_utf8();
  // mpirun gives its processes terminals of its own, whatever its own output is.
  const bool interactive = isatty(STDOUT_FILENO) == 1 && !set("OMPI_COMM_WORLD_SIZE");
  const char* term = std::getenv("TERM");
  terminal.color = interactive && !set("NO_COLOR") && !(term && std::string_view(term) == "dumb");
  terminal.width = output_width(interactive);
  terminal.program = program_invocation_name;  // as typed, for example build/nanscope
  return terminal;
}

int complain(std::string_view message, std::string_view who) {
  const std::string line = fmt::format("{}: {}\n", who, error_line(message, output_terminal().charset()));
  std::fwrite(line.data(), 1, line.size(), stderr);
  return kBadInput;
}

void print(std::string_view text) {
  // Documents are always UTF-8. Texts for an ASCII terminal already hold only ASCII.
  const std::string safe = safe_lines(text, Charset::utf8, output_terminal().color);
  if (std::fwrite(safe.data(), 1, safe.size(), stdout) != safe.size() && first_error == 0) first_error = errno;
}

bool print_now(std::string_view text) {
  print(text);
  if (std::fflush(stdout) != 0 && first_error == 0) first_error = errno;
  return first_error == 0;
}

int output_error() { return first_error; }

}  // namespace nanscope::cli
