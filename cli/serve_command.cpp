#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/model_scenario.h"
#include "cli/replay_limits.h"
#include "core/files/output_file.h"
#include "scenarios/library.h"
#include "scenarios/run_spec.h"
#include "scenarios/serve/chat_template.h"
#include "scenarios/serve/live_session.h"
#include "scenarios/serve/server.h"

namespace nanscope::cli {

namespace fs = std::filesystem;

namespace {

struct ServeOptions {
  std::string target;
  std::string model;
  std::vector<std::string> settings;
  std::string device;
  int threads = -1;
  serve::SessionOptions session;
  serve::ServerOptions server;
  RunLimits limits = kReplayLimits;  ///< of a scenario
};

Result<scenarios::RunSpec> spec_of(const ServeOptions& options) {
  if (options.model.empty() == options.target.empty()) return fail("serve needs a SCENARIO, or --model DIR");
  Result<scenarios::Scenario> scenario = fail("");
  if (options.model.empty()) {
    const auto path = scenarios::find_scenario(options.target);
    if (!path) return tl::unexpected(path.error());
    if (fs::is_directory(*path)) return fail(fmt::format("{}: serve takes one scenario", path->string()));
    scenario = scenarios::load_scenario(*path);
  } else {
    scenario = scenario_of_model(
        {.model = options.model, .settings = {}, .prompts = {}, .prompt_tokens = {}, .asked_later = true});
  }
  if (!scenario) return tl::unexpected(scenario.error());
  auto spec = scenarios::resolve(*scenario);
  if (!spec) return spec;
  if (Status set = scenarios::apply_settings(spec->config, options.settings); !set) return tl::unexpected(set.error());
  if (!options.device.empty()) spec->config.device = options.device;
  if (options.threads >= 0) spec->config.threads = options.threads;
  return spec;
}

int serve_target(const ServeOptions& options, Interrupt& interrupt) {
  const auto spec = spec_of(options);
  if (!spec) return complain(spec.error().message);
  interrupt.be_patient();  // the answer that is under way, and the end of the recording
  serve::SessionOptions session_options = options.session;
  // A scenario may be a file of others; a checkpoint's size is known to the user.
  if (options.model.empty()) session_options.limits = options.limits;
  auto session = serve::LiveSession::open(*spec, session_options);
  if (!session) return complain(session.error().message);
  serve::ServerOptions server_options = options.server;
  server_options.model = spec->scenario;
  server_options.chat = !serve::has_chat_template(spec->config.model.weights);
  auto server = serve::Server::open(**session, server_options);
  if (!server) return complain(server.error().message);
  print_now(
      fmt::format("{} on http://{}:{}/v1; Ctrl-C ends it\n", spec->scenario, options.server.host, (*server)->port()));
  const Status served = (*server)->run(interrupt.token());
  if (!served) return complain(served.error().message);
  const auto answered = (*session)->next_request();
  if (Status finished = (*session)->finish(); !finished) return complain(finished.error().message);
  if (options.session.recording.empty()) return kClean;
  print(fmt::format("{}: {} request{}; nanscope diagnose {}\n", options.session.recording.string(), answered,
                    answered == 1 ? "" : "s", options.session.recording.string()));
  return kClean;
}

}  // namespace

void add_serve_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<ServeOptions>();
  CLI::App* command = app.add_subcommand(
      "serve", "Answer OpenAI-compatible requests with a scenario's deployment or a checkpoint, and record them");
  command->add_option("SCENARIO", options->target, "A scenario file, or a name from the library");
  command
      ->add_option("--model", options->model,
                   "Serve a Hugging Face checkpoint instead: a folder with config.json and *.safetensors")
      ->type_name("DIR");
  command->add_option("--set", options->settings, "Change a setting; repeatable")
      ->type_name("SETTING=VALUE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->add_option("--host", options->server.host, "Address to listen on; the default is reached from here alone")
      ->type_name("ADDRESS")
      ->capture_default_str();
  command->add_option("--port", options->server.port, "Port to listen on; 0: any that is free")
      ->type_name("N")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  command->add_option("-o,--output", options->session.recording, "Record all requests in this file")->type_name("FILE");
  command->add_flag("--force", options->session.force, "Replace the file if it exists");
  command
      ->add_option("--capture", options->session.capture,
                   "Tensors to store: none, all, ring:N (N steps around the first NaN or Inf), named:ROLE,...")
      ->type_name("CAPTURE")
      ->capture_default_str();
  command->add_option("--device", options->device, "cpu, cpu:avx2, cuda, ...")->type_name("DEVICE");
  command->add_option("--threads", options->threads, "Threads of the CPU device; 0: one per core")
      ->type_name("N")
      ->check(CLI::Range(0, 1024));
  add_run_limits(*command, options->limits, "a request of a scenario");
  command->footer(
      "Paths: /v1/models, /v1/completions, /v1/chat/completions, /health. Answers are the most likely tokens: "
      "temperature must be 0 or left out. The server asks for no key, so keep it on the default address.\n"
      "\n"
      "Examples:\n"
      "  nanscope serve kv-scale-lock -o served.nanscope\n"
      "  nanscope serve --model ~/Llama-3.2-1B --set kv.format=e4m3 --port 9000\n"
      "  curl -s http://127.0.0.1:8000/v1/completions -d '{\"prompt\": \"Moons pull\", \"max_tokens\": 8}'\n"
      "\n"
      "Exit codes: 0 does not occur, because a signal ends the server; 2 bad usage or a server that cannot run, 130 "
      "ended "
      "by Ctrl-C, 143 by SIGTERM, both with a complete recording.");
  command->callback(
      [options, &action] { action = [options](Interrupt& interrupt) { return serve_target(*options, interrupt); }; });
}

}  // namespace nanscope::cli
