#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dump/diagnose_dump.h"
#include "instrument/dump/open_dump.h"
#include "tests/corpus/corpus.h"
#include "tests/temporary_folder.h"

/// Generates the corpus, diagnoses every dump and prints how often class, root tensor and first bad tensor are right.
namespace nanscope::corpus {
namespace {

struct Options {
  std::vector<std::string> only;  ///< classes; all when empty
  std::uint64_t seeds = 8;
  std::filesystem::path keep;
  std::string binary;  ///< nanscope, for the answers of the command as well
  bool faults = true;
  bool clean = true;
};

struct Score {
  int fault_class = 0;
  int root = 0;
  int first_bad = 0;
  int of = 0;
  int doubtful = 0;
};

/// What a diagnosis says, and the same of one that could not be made.
struct Answer {
  Label label;
  std::string error;
  std::vector<std::string> warnings{};
};

Answer diagnosed(const std::filesystem::path& folder) {
  const auto opened = OpenDump::open(folder, {.threads = 1, .progress = {}, .stop = {}, .sums = false});
  if (!opened) return {{}, opened.error().message};
  const auto diagnosis = diagnose_dump((*opened)->dump(), **opened);
  if (!diagnosis) return {{}, diagnosis.error().message};
  Answer answer;
  answer.label.first_bad = diagnosis->spread.first_bad_tensor;
  for (const Warning& one : diagnosis->warnings)
    answer.warnings.push_back(fmt::format("{}: {}", one.kind, one.summary));
  if (diagnosis->root_cause) {
    const Fault& root = diagnosis->faults[*diagnosis->root_cause];
    answer.label.fault_class = root.fault_class;
    answer.label.root = root.tensor;
  }
  return answer;
}

/// The same from `nanscope diagnose --format json`.
Answer answered(const std::string& binary, const std::filesystem::path& folder) {
  const std::string command = fmt::format("'{}' diagnose '{}' --format json", binary, folder.string());
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  if (!pipe) return {{}, "cannot run " + command};
  std::string text;
  std::array<char, 4096> piece{};
  while (const std::size_t got = std::fread(piece.data(), 1, piece.size(), pipe.get())) text.append(piece.data(), got);
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (json.is_discarded() || !json.contains("root_cause")) return {{}, "no answer from " + command};
  Answer answer;
  if (json["spread"]["first_bad_tensor"].is_string()) answer.label.first_bad = json["spread"]["first_bad_tensor"];
  if (json["root_cause"].is_object()) {
    answer.label.fault_class = json["root_cause"]["class"];
    answer.label.root = json["root_cause"]["tensor"];
  }
  return answer;
}

class Check {
 public:
  explicit Check(const Options& options) : options_(options) {}

  void faults(const CorpusClass& of) { scores_.emplace_back(of.name, all_of(of)); }
  void clean(const CorpusClass& of) { clean_.emplace_back(of.name, all_of(of)); }
  bool report() const;

 private:
  Score all_of(const CorpusClass& of);
  void one(const CorpusClass& of, int shape, std::uint64_t seed, Score& score);
  void compare(const CorpusClass& of, int shape, std::uint64_t seed, const Label& truth, const Answer& found,
               Score& score);

  const Options& options_;
  TemporaryFolder temporary_;
  std::vector<std::pair<std::string_view, Score>> scores_;
  std::vector<std::pair<std::string_view, Score>> clean_;
  std::vector<std::string> misses_;
  std::vector<std::string> warnings_;  ///< of clean dumps
};

Score Check::all_of(const CorpusClass& of) {
  Score score;
  for (std::uint64_t seed = 1; seed <= options_.seeds; ++seed) {
    for (int shape = 0; shape < kShapes; ++shape) one(of, shape, seed, score);
  }
  return score;
}

void Check::one(const CorpusClass& of, int shape, std::uint64_t seed, Score& score) {
  const Case made = of.make(shape, seed);
  const std::string name = fmt::format("{}-shape{}-seed{}", of.name, shape, seed);
  const std::filesystem::path folder = options_.keep.empty() ? temporary_ / "dump" : options_.keep / name;
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  ++score.of;
  if (!made.doubt.empty()) {
    ++score.doubtful;
    misses_.push_back(fmt::format("{}: the label is doubtful: {}", name, made.doubt));
  }
  if (const Status written = made.tape.write(folder); !written) {
    misses_.push_back(fmt::format("{}: {}", name, written.error().message));
    return;
  }
  const Answer answer = diagnosed(folder);
  compare(of, shape, seed, made.label, answer, score);
  if (made.label.fault_class.empty()) {
    for (const std::string& one : answer.warnings) warnings_.push_back(fmt::format("{}: {}", name, one));
  }
  // One of a class is enough to know that the command says what the library does.
  if (options_.binary.empty() || seed != 1 || shape != 0) return;
  Score again;
  compare(of, shape, seed, made.label, answered(options_.binary, folder), again);
}

void Check::compare(const CorpusClass& of, int shape, std::uint64_t seed, const Label& truth, const Answer& found,
                    Score& score) {
  std::string miss = found.error.empty() ? "" : " " + found.error;
  const auto right = [&](const std::string& expected, const std::string& said, std::string_view what, int& count) {
    if (expected == said) {
      ++count;
    } else if (found.error.empty()) {
      miss += fmt::format("\n    {:<10} expected {:<24} found {}", what, expected.empty() ? "none" : expected,
                          said.empty() ? "none" : said);
    }
  };
  right(truth.fault_class, found.label.fault_class, "class", score.fault_class);
  right(truth.root, found.label.root, "root", score.root);
  right(truth.first_bad, found.label.first_bad, "first bad", score.first_bad);
  if (!miss.empty()) misses_.push_back(fmt::format("{} shape {} seed {}:{}", of.name, shape, seed, miss));
}

bool Check::report() const {
  fmt::print("{:<28} {:>6} {:>6} {:>10} {:>4}\n", "class", "class", "root", "first bad", "of");
  for (const auto& [name, s] : scores_) {
    fmt::print("{:<28} {:>6} {:>6} {:>10} {:>4}\n", name, s.fault_class, s.root, s.first_bad, s.of);
  }
  int alarms = 0;
  int of = 0;
  for (const auto& [name, s] : clean_) {
    alarms += s.of - s.fault_class;
    of += s.of;
    fmt::print("clean: {:<42} {:>3} false alarms of {}\n", name, s.of - s.fault_class, s.of);
  }
  if (of > 0) fmt::print("{} false alarms of {} clean dumps, {} early warnings\n", alarms, of, warnings_.size());
  for (const std::string& one : warnings_) fmt::print("warning: {}\n", one);
  for (const std::string& miss : misses_) fmt::print("{}\n", miss);
  return misses_.empty();
}

int usage() {
  fmt::print(stderr,
             "usage: corpus_check [--list] [--class NAME]... [--seeds N] [--clean-only] [--faults-only]\n"
             "                    [--keep FOLDER] [--binary NANSCOPE]\n");
  return 2;
}

std::optional<Options> parsed(std::span<char*> arguments) {
  Options options;
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    const std::string_view flag = arguments[i];
    if (flag == "--clean-only") {
      options.faults = false;
    } else if (flag == "--faults-only") {
      options.clean = false;
    } else if (i + 1 == arguments.size()) {
      return std::nullopt;
    } else if (flag == "--class") {
      options.only.emplace_back(arguments[++i]);
    } else if (flag == "--seeds") {
      options.seeds = static_cast<std::uint64_t>(std::strtoul(arguments[++i], nullptr, 10));
    } else if (flag == "--keep") {
      options.keep = arguments[++i];
    } else if (flag == "--binary") {
      options.binary = arguments[++i];
    } else {
      return std::nullopt;
    }
  }
  return options;
}

int check(std::span<char*> arguments) {
  if (arguments.size() == 2 && std::string_view(arguments[1]) == "--list") {
    for (const CorpusClass& c : fault_classes()) fmt::print("{}\n", c.name);
    for (const CorpusClass& c : clean_kinds()) fmt::print("clean: {}\n", c.name);
    return 0;
  }
  const std::optional<Options> options = parsed(arguments);
  if (!options) return usage();
  const auto wanted = [&](std::string_view name) {
    return options->only.empty() || std::find(options->only.begin(), options->only.end(), name) != options->only.end();
  };
  Check check(*options);
  bool any = false;
  for (const CorpusClass& c : fault_classes()) {
    if (!options->faults || !wanted(c.name)) continue;
    check.faults(c);
    any = true;
  }
  for (const CorpusClass& c : clean_kinds()) {
    if (!options->clean || !wanted(c.name)) continue;
    check.clean(c);
    any = true;
  }
  if (!any) return usage();
  return check.report() ? 0 : 1;
}

}  // namespace
}  // namespace nanscope::corpus

int main(int argc, char** argv) { return nanscope::corpus::check(std::span(argv, static_cast<std::size_t>(argc))); }
