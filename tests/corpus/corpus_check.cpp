#include <fmt/format.h>

#include <algorithm>
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

#include "core/dump/dump_run.h"
#include "instrument/diagnosis/diagnosis.h"
#include "instrument/dump/open_dump.h"
#include "instrument/recompute/kernel_arithmetic.h"
#include "tests/corpus/corpus.h"
#include "tests/temporary_folder.h"

/// Generates the corpus, diagnoses every dump and prints how often class, root tensor and first bad tensor are right.
namespace nanscope::corpus {
namespace {

/// The check fails where less is reached. These are only raised.
struct Goal {
  double fault_class = 0;  ///< percent of dumps with faults, as all of these
  double root = 0;
  double causes = 0;
  double alarms = 0;  ///< percent of clean dumps
};
constexpr Goal kGoal{99, 99, 98, 0};

struct Options {
  std::vector<std::string> only;  ///< classes; all when empty
  std::uint64_t seeds = 8;
  std::optional<int> shape;  ///< all when empty
  std::filesystem::path keep;
  std::string binary;  ///< nanscope, for the answers of the command as well
  bool faults = true;
  bool clean = true;
};

struct Score {
  int fault_class = 0;
  int root = 0;
  int first_bad = 0;
  int causes = 0;  ///< the faults without a cause are those of the label, and what follows leads to its root
  int of = 0;
  int doubtful = 0;
};

/// What a diagnosis says, and the same of one that could not be made.
struct Answer {
  Label label;
  std::string error;
  std::vector<std::string> warnings{};
  std::string causes{};  ///< what is wrong with them, by the truth
};

/// Empty where the faults without a cause are those of the label, and what follows leads back to its root.
std::string wrong_causes(const Label& truth, const Diagnosis& found) {
  std::vector<Independent> expected = truth.others;
  if (!truth.fault_class.empty()) expected.push_back({truth.fault_class, truth.root});
  std::string wrong;
  for (const Fault& fault : found.faults) {
    if (fault.because) continue;
    const auto known = std::find_if(expected.begin(), expected.end(), [&](const Independent& one) {
      return one.fault_class == fault.fault_class && (one.root == fault.tensor || one.root == truth.root);
    });
    if (known == expected.end()) {
      wrong += fmt::format(" {} at {} without a cause", fault.fault_class, fault.tensor);
    } else {
      expected.erase(known);
    }
  }
  for (const Independent& one : expected) wrong += fmt::format(" no root {} at {}", one.fault_class, one.root);
  if (truth.follows.empty()) return wrong;
  const auto follows = std::find_if(found.faults.begin(), found.faults.end(),
                                    [&](const Fault& one) { return one.fault_class == truth.follows; });
  if (follows == found.faults.end()) return wrong + " no " + truth.follows;
  std::size_t at = static_cast<std::size_t>(follows - found.faults.begin());
  for (std::size_t hops = 0; found.faults[at].because && hops < found.faults.size(); ++hops)
    at = *found.faults[at].because;
  if (found.faults[at].fault_class != truth.fault_class)
    wrong += fmt::format(" {} follows from {}", truth.follows, found.faults[at].fault_class);
  return wrong;
}

Answer diagnosed(const std::filesystem::path& folder, const Label& truth) {
  const auto opened = OpenDump::open(folder, {.threads = 1, .progress = {}, .stop = {}, .sums = false});
  if (!opened) return {{}, opened.error().message};
  DumpRun run((*opened)->dump(), **opened);
  KernelArithmetic arithmetic;
  const auto diagnosis = diagnose(run, arithmetic);
  if (!diagnosis) return {{}, diagnosis.error().message};
  Answer answer;
  answer.causes = wrong_causes(truth, *diagnosis);
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
    for (int shape = 0; shape < kShapes; ++shape) {
      if (options_.shape.value_or(shape) == shape) one(of, shape, seed, score);
    }
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
  const Answer answer = diagnosed(folder, made.label);
  compare(of, shape, seed, made.label, answer, score);
  if (made.label.fault_class.empty()) {
    for (const std::string& one : answer.warnings) warnings_.push_back(fmt::format("{}: {}", name, one));
  }
  // One of a class is enough to know that the command says what the library does.
  if (options_.binary.empty() || seed != 1 || shape != 0) return;
  Score again;
  Answer of_command = answered(options_.binary, folder);
  of_command.causes = answer.causes;
  compare(of, shape, seed, made.label, of_command, again);
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
  // A scale's fault may be told at the scale, or at the codes that show it.
  const bool shown = !truth.root.empty() && found.label.root == truth.first_bad;
  right(shown ? truth.first_bad : truth.root, found.label.root, "root", score.root);
  right(truth.first_bad, found.label.first_bad, "first bad", score.first_bad);
  right("", found.causes, "causes", score.causes);
  if (!miss.empty()) misses_.push_back(fmt::format("{} shape {} seed {}:{}", of.name, shape, seed, miss));
}

bool Check::report() const {
  fmt::print("{:<28} {:>6} {:>6} {:>10} {:>7} {:>4}\n", "class", "class", "root", "first bad", "causes", "of");
  Score all;
  for (const auto& [name, s] : scores_) {
    fmt::print("{:<28} {:>6} {:>6} {:>10} {:>7} {:>4}\n", name, s.fault_class, s.root, s.first_bad, s.causes, s.of);
    all = {all.fault_class + s.fault_class, all.root + s.root, all.first_bad + s.first_bad,
           all.causes + s.causes,           all.of + s.of,     all.doubtful + s.doubtful};
  }
  int alarms = 0;
  int of = 0;
  for (const auto& [name, s] : clean_) {
    alarms += s.of - s.fault_class;
    of += s.of;
    fmt::print("clean: {:<42} {:>3} false alarms of {}\n", name, s.of - s.fault_class, s.of);
  }
  for (const std::string& one : warnings_) fmt::print("warning: {}\n", one);
  for (const std::string& miss : misses_) fmt::print("{}\n", miss);
  const auto share = [](int right, int count) { return count > 0 ? 100.0 * right / count : 100.0; };
  if (all.of > 0) {
    fmt::print(
        "{} dumps with faults: class right in {:.2f} %, root tensor in {:.2f} %, first bad tensor in {:.2f} %, causes "
        "in {:.2f} %; {} doubtful\n",
        all.of, share(all.fault_class, all.of), share(all.root, all.of), share(all.first_bad, all.of),
        share(all.causes, all.of), all.doubtful);
  }
  if (of > 0) fmt::print("{} false alarms of {} clean dumps, {} early warnings\n", alarms, of, warnings_.size());
  const double alarmed = of > 0 ? 100.0 * alarms / of : 0;
  fmt::print("goal: class {} %, root {} %, causes {} %, alarms {} %\n", kGoal.fault_class, kGoal.root, kGoal.causes,
             kGoal.alarms);
  return share(all.fault_class, all.of) >= kGoal.fault_class && share(all.root, all.of) >= kGoal.root &&
         share(all.causes, all.of) >= kGoal.causes && alarmed <= kGoal.alarms;
}

int usage() {
  fmt::print(stderr,
             "usage: corpus_check [--list] [--class NAME]... [--seeds N] [--shape 0..3] [--clean-only]\n"
             "                    [--faults-only] [--keep FOLDER] [--binary NANSCOPE]\n");
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
    } else if (flag == "--shape") {
      options.shape = static_cast<int>(std::strtol(arguments[++i], nullptr, 10));
      if (*options.shape < 0 || *options.shape >= kShapes) return std::nullopt;
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
