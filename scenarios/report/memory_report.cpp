#include "scenarios/report/memory_report.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/counted.h"
#include "scenarios/report/run_json.h"

namespace nanscope::report {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kGib = 1073741824.0;

std::string gib(double bytes) {
  return bytes < kGib / 10 ? bytes_text(bytes) : fmt::format("{:.2f} GiB", bytes / kGib);
}

std::string count_text(std::int64_t count) {
  const auto value = static_cast<double>(count);
  return count >= 1'000'000'000 ? fmt::format("{:.2f} billion", value / 1e9)
         : count >= 1'000'000   ? fmt::format("{:.2f} million", value / 1e6)
                                : std::to_string(count);
}

/// Requests of the options' context that a device holds beside the weights; negative: not even these.
std::int64_t requests_that_fit(const MemoryPlan& plan, double device) {
  const double left = device - plan.weight_bytes;
  if (left < 0) return -1;
  return plan.request_bytes > 0 ? static_cast<std::int64_t>(left / plan.request_bytes) : 0;
}

std::string fit_text(const MemoryPlan& plan, double device) {
  const std::int64_t requests = requests_that_fit(plan, device);
  return requests < 0 ? "weights do not fit" : counted(requests, "request");
}

Json plan_json(const MemoryPlan& plan) {
  return {{"token_bytes", plan.token_bytes}, {"request_bytes", plan.request_bytes}, {"cache_bytes", plan.cache_bytes}};
}

}  // namespace

std::string memory_text(const MemoryWords& words, const Terminal& terminal) {
  const MemoryPlan& plan = words.plan;
  const MemoryOptions& options = words.options;
  std::string text = fmt::format("Model     {}, {}: {} parameters", printable(words.target, terminal),
                                 printable(words.family, terminal), count_text(plan.parameters));
  if (plan.active != plan.parameters) text += fmt::format(", of which a token meets {}", count_text(plan.active));
  text += fmt::format("\nWeights   {}", gib(plan.weight_bytes));
  text += words.as_stored ? ", as the files hold them"
                          : fmt::format(": matrices of products in {}, all others in {}", options.weights.name,
                                        options.others.name);
  if (words.stored_bytes && !words.as_stored) text += fmt::format("; the files hold {}", gib(*words.stored_bytes));
  text += fmt::format(
      "\nCache     {} in {}: {} of {} tokens, {} a token{}\n", gib(plan.cache_bytes), options.cache.name,
      counted(options.batch, "request"), options.context, bytes_text(plan.token_bytes),
      plan.latent ? fmt::format(", as latents; whole keys and values take {}", bytes_text(plan.expanded_token_bytes))
                  : "");
  std::vector<std::string> titles = {"cache in", "a token", "a request", "all requests"};
  std::vector<Align> columns = {Align::left, Align::right, Align::right, Align::right};
  for (const double device : words.devices) {
    titles.push_back(fmt::format("fits {}", gib(device)));
    columns.push_back(Align::right);
  }
  Table table(columns);
  table.row(titles);
  for (const CacheChoice& one : words.caches) {
    std::vector<std::string> row = {one.format, bytes_text(one.plan.token_bytes), gib(one.plan.request_bytes),
                                    gib(one.plan.cache_bytes)};
    for (const double device : words.devices) row.push_back(fit_text(one.plan, device));
    table.row(row);
  }
  return text + "\n" + table.text("  ", terminal.width) +
         "\nActivations, workspaces and the server's own memory are not counted.\n";
}

std::string memory_json(const MemoryWords& words) {
  const MemoryPlan& plan = words.plan;
  const MemoryOptions& options = words.options;
  Json json = {{"schema", "nanscope.memory/1"},
               {"target", words.target},
               {"family", words.family},
               {"parameters", plan.parameters},
               {"active_parameters", plan.active},
               {"product_parameters", plan.products},
               {"weights", words.as_stored ? Json(nullptr) : Json(options.weights.name)},
               {"other_weights", words.as_stored ? Json(nullptr) : Json(options.others.name)},
               {"weight_bytes", plan.weight_bytes},
               {"stored_bytes", words.stored_bytes ? Json(*words.stored_bytes) : Json(nullptr)},
               {"context", options.context},
               {"batch", options.batch},
               {"latent", plan.latent},
               {"caches", Json::array()}};
  for (const CacheChoice& one : words.caches) {
    Json entry = {{"format", one.format}};
    entry.update(plan_json(one.plan));
    entry["devices"] = Json::array();
    for (const double device : words.devices)
      entry["devices"].push_back({{"bytes", device}, {"requests", requests_that_fit(one.plan, device)}});
    json["caches"].push_back(std::move(entry));
  }
  return dump_json(json) + "\n";
}

}  // namespace nanscope::report
