#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "core/files/output_file.h"
#include "instrument/server_probe/conversation.h"
#include "instrument/server_probe/report.h"
#include "scenarios/report/junit.h"
#include "scenarios/report/run_json.h"

namespace nanscope::cli {

namespace {

constexpr int kNoAnswer = kNotJudged;  ///< the server could not be asked

struct ProbeOptions {
  std::string url;
  std::string from;
  std::string model;
  std::string reference;
  std::string save;
  bool force = false;
  std::string format = "text";
  server_probe::Conversation::Limits limits;
};

std::string key_of_environment() {
  for (const char* variable : {"NANSCOPE_API_KEY", "OPENAI_API_KEY"}) {
    if (const char* key = std::getenv(variable); key != nullptr) return key;
  }
  return {};
}

std::string junit_of(const server_probe::Finding& finding) {
  std::vector<report::JUnitCase> cases;
  for (const server_probe::Observation& one : finding.observations) {
    if (one.state == server_probe::State::not_asked) continue;
    report::JUnitCase test{
        .name = one.invariant, .class_name = "nanscope.probe", .seconds = 0, .failures = {}, .error = {}, .output = {}};
    if (one.state == server_probe::State::broken) test.failures.push_back(one.summary);
    cases.push_back(std::move(test));
  }
  return report::junit_xml("nanscope probe", cases);
}

void print_finding(const server_probe::Finding& finding, const std::string& format) {
  if (format == "json") {
    print(report::dump_json(server_probe::finding_json(finding)));
  } else if (format == "junit") {
    print(junit_of(finding));
  } else if (format == "markdown") {
    print(server_probe::finding_markdown(finding));
  } else {
    print(server_probe::finding_text(finding));
  }
}

int probe(const ProbeOptions& options, Interrupt& interrupt) {
  using namespace server_probe;
  if (options.url.empty() == options.from.empty()) return complain("probe needs a URL, or --from FILE");
  if (!options.from.empty() && !options.save.empty()) return complain("--save is for a URL: --from asks nobody");
  if (!options.from.empty() && !options.reference.empty())
    return complain("--reference is for a URL: --from asks nobody");
  const OutputOptions output{.replace = options.force, .mode = 0600};  // answers of a server may be private
  if (!options.save.empty()) {
    if (Status allowed = check_output(options.save, output); !allowed) return complain(allowed.error().message);
  }
  interrupt.be_patient();  // the request that is under way
  auto transport = options.from.empty() ? connect(options.url, key_of_environment()) : replay_file(options.from);
  if (!transport) return complain(transport.error().message);
  ProgressLine progress("requests");
  Conversation talk(**transport, options.limits, interrupt.token(), [&](int done) { progress.show(done, 0, {}); });
  if (Status begun = talk.begin(options.model); !begun) {
    progress.clear();
    complain(begun.error().message);
    return options.from.empty() ? kNoAnswer : kBadInput;
  }
  std::unique_ptr<Transport> other;
  std::unique_ptr<Conversation> reference;
  if (!options.reference.empty()) {
    auto connected = connect(options.reference, {});
    if (!connected) return complain(connected.error().message);
    other = std::move(*connected);
    reference = std::make_unique<Conversation>(*other, options.limits, interrupt.token(), [](int) {});
    if (Status begun = reference->begin({}); !begun) {
      progress.clear();
      complain("--reference: " + begun.error().message);
      return kNoAnswer;
    }
  }
  const server_probe::Finding finding =
      investigate(talk, reference.get(), options.url.empty() ? options.from : options.url);
  progress.clear();
  print_finding(finding, options.format);
  if (!options.save.empty()) {
    if (Status saved = write_output(options.save, saved_text(talk.exchanges()), output); !saved) {
      return complain(saved.error().message);
    }
  }
  return finding.broken() ? kFound : finding.judged() ? kClean : kNoAnswer;
}

}  // namespace

void add_probe_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<ProbeOptions>();
  CLI::App* command =
      app.add_subcommand("probe", "Ask a running server, and find which invariants of inference it breaks");
  command->add_option("URL", options->url, "An OpenAI-compatible server, such as http://127.0.0.1:8000");
  command->add_option("--model", options->model, "The model to ask (default: the first that the server lists)")
      ->type_name("NAME");
  command->add_option("--budget", options->limits.requests, "Number of requests at most")
      ->type_name("N")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  command->add_option("--rate", options->limits.per_second, "Number of requests per second at most")
      ->type_name("N")
      ->check(CLI::Range(0.01, 10000.0))
      ->capture_default_str();
  command->add_option("--reference", options->reference, "A server with the same model, to compare with")
      ->type_name("URL");
  command->add_option("--save", options->save, "Write all requests and answers to this file")->type_name("FILE");
  command->add_flag("--force", options->force, "Replace the file of --save if it exists");
  command->add_option("--from", options->from, "Read a file of --save again instead of asking a server")
      ->type_name("FILE");
  add_format(*command, options->format, {"text", "json", "junit", "markdown"});
  command->footer(
      "Environment: NANSCOPE_API_KEY, else OPENAI_API_KEY, is the key that the server asks for. It is written "
      "nowhere.\n"
      "\n"
      "Examples:\n"
      "  nanscope probe http://127.0.0.1:8000\n"
      "  nanscope probe http://127.0.0.1:8000 --save asked.jsonl --format json\n"
      "  nanscope probe --from asked.jsonl\n"
      "\n"
      "Exit codes: 0 no invariant is broken as far as asked, 1 one is, 2 bad usage or bad input, 3 the server could "
      "not "
      "be asked or judged, 130 interrupted.");
  command->callback(
      [options, &action] { action = [options](Interrupt& interrupt) { return probe(*options, interrupt); }; });
}

}  // namespace nanscope::cli
