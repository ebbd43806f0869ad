#include <sqlite3.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "gui/facts.h"
#include "gui/opened_run.h"
#include "gui/prepare/kv_map.h"
#include "gui/prepare/ledger.h"
#include "gui/prepare/subject.h"
#include "gui/prepare/tensor_sheet.h"
#include "instrument/diagnosis/why.h"
#include "scenarios/analysis.h"
#include "scenarios/export_dump.h"
#include "scenarios/record.h"
#include "scenarios/replay.h"

/// Recordings whose fields were changed, through all that a command and the window make of them: diagnosis, the walk
/// back, a dump, the window's map, sheets, ledger and slots. The input is a list of changes of six bytes each: column,
/// row, what to put there; so that each input is a database that SQLite reads.
namespace {

namespace fs = std::filesystem;
using namespace nanscope;

struct Folder {
  fs::path path;
  Folder() {
    const fs::path base = fs::exists("/dev/shm") ? fs::path("/dev/shm") : fs::temp_directory_path();
    std::string name = (base / "nanscope-fuzz-XXXXXX").string();
    path = mkdtemp(name.data());
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

const fs::path& folder() {
  static const Folder made;
  return made.path;
}

/// A run of two layers in which a NaN is read from the cache.
scenarios::RunSpec small_run() {
  scenarios::RunSpec spec;
  const std::array<std::string, 13> settings = {"model.weights=random",   "model.layers=2",   "model.width=64",
                                                "model.heads=2",          "model.kv_heads=1", "model.head_dim=32",
                                                "model.mlp_width=64",     "kv.format=e4m3",   "kv.policy=per_request",
                                                "kv.memory=recycled",     "kv.blocks=8",      "engine.threads=1",
                                                "attention.mask=multiply"};
  if (!scenarios::apply_settings(spec.config, settings)) std::abort();
  for (const char* text : {"Moons pull tides, tides turn wheels", "Moons pull boats"}) {
    RequestSpec request;
    request.parts.emplace_back(TextPart{text});
    request.max_tokens = 2;
    spec.requests.push_back(std::move(request));
  }
  return spec;
}

struct Column {
  std::string table, name;
};

struct Base {
  std::vector<char> file;
  std::vector<Column> columns;
};

void each_row(sqlite3* db, const std::string& sql, std::vector<std::vector<std::string>>& rows) {
  sqlite3_exec(
      db, sql.c_str(),
      [](void* into, int count, char** values, char**) {
        auto& row = static_cast<std::vector<std::vector<std::string>>*>(into)->emplace_back();
        for (int i = 0; i < count; ++i) row.emplace_back(values[i] != nullptr ? values[i] : "");
        return 0;
      },
      &rows, nullptr);
}

const Base& base() {
  static const Base made = [] {
    const fs::path path = folder() / "base.nanscope";
    const scenarios::RunSpec spec = small_run();
    auto bench = scenarios::Workbench::open(spec.config);
    scenarios::RecordOptions options;
    options.path = path;
    options.capture = "all";
    if (!bench || !scenarios::record(**bench, spec, options)) std::abort();
    Base out;
    std::ifstream file(path, std::ios::binary);
    out.file.assign(std::istreambuf_iterator<char>(file), {});
    sqlite3* db = nullptr;
    sqlite3_open(path.c_str(), &db);
    std::vector<std::vector<std::string>> tables;
    each_row(db, "SELECT name FROM sqlite_schema WHERE type = 'table'", tables);
    for (const auto& table : tables) {
      std::vector<std::vector<std::string>> columns;
      each_row(db, "SELECT name FROM pragma_table_info('" + table[0] + "')", columns);
      for (const auto& column : columns) out.columns.push_back({table[0], column[0]});
    }
    sqlite3_close(db);
    return out;
  }();
  return made;
}

/// SQL for what a column gets: near what was there, at the ends of what fits, of another row, or nothing.
std::string value_of(const Column& column, std::uint8_t kind, std::uint8_t number) {
  const std::string& name = column.name;
  switch (kind % 12) {
    case 0:
      return name + " + " + std::to_string(number);
    case 1:
      return name + " - " + std::to_string(number);
    case 2:
      return name + " * " + std::to_string(number);
    case 3:
      return std::to_string(std::int64_t{1} << (number % 63));
    case 4:
      return "-" + std::to_string(std::int64_t{1} << (number % 63));
    case 5:
      return "NULL";
    case 6:
      return "(SELECT " + name + " FROM " + column.table + " LIMIT 1 OFFSET " + std::to_string(number) + ")";
    case 7:
      return "replace(CAST(" + name + " AS TEXT), char(" + std::to_string(32 + number % 95) + "), '" +
             std::to_string(number) + "')";
    case 8:
      return "substr(" + name + ", 1, " + std::to_string(number) + ")";
    case 9:
      return "9e999";
    case 10:
      return name + " || " + name;
    default:
      return std::to_string(number);
  }
}

void change(const fs::path& path, const std::uint8_t* data, std::size_t size) {
  sqlite3* db = nullptr;
  sqlite3_open(path.c_str(), &db);
  sqlite3_exec(db, "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF", nullptr, nullptr, nullptr);
  for (std::size_t i = 0; i + 6 <= std::min<std::size_t>(size, 60); i += 6) {
    const Column& column = base().columns[(std::size_t{data[i]} << 8 | data[i + 1]) % base().columns.size()];
    std::string sql =
        "UPDATE OR IGNORE " + column.table + " SET " + column.name + " = " + value_of(column, data[i + 3], data[i + 4]);
    const std::string row = std::to_string(data[i + 5]);
    if (data[i + 2] % 3 == 0) sql += " WHERE rowid % 16 = " + row + " % 16";
    if (data[i + 2] % 3 == 1) sql += " WHERE rowid = " + row;
    sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr);
  }
  sqlite3_close(db);
}

void look_at_window(gui::RunFacts& facts) {
  for (int turn = 0; turn < 3; ++turn) std::ignore = facts.map();
  std::ignore = facts.story();
  RunView& view = facts.view();
  std::ignore = gui::make_ledger(view);
  Facts known(view);
  for (const Step& step : view.steps()) {
    std::ignore = gui::make_kv_map(known, step);
    for (const Tensor& tensor : view.content(step.id).tensors) {
      if (tensor.id % 7 != 0) continue;
      const Place place = gui::tensor_place(gui::subject_of(view, tensor));
      std::ignore = gui::make_tensor_sheet(view, place, {}, nullptr);
    }
  }
}

void use(const fs::path& path) {
  auto opened = gui::open_run(path);
  if (!opened) {
    if (opened.error().message.find('\n') != std::string::npos) std::abort();
    return;
  }
  gui::RunFacts facts(std::move(*opened));
  std::ignore = scenarios::analyse(facts.run(), facts.diagnosis_options());
  Facts known(facts.view());
  if (const auto first = first_bad(known)) std::ignore = why(facts.view(), *first);
  if (facts.recording() != nullptr) {
    scenarios::ExportOptions options;
    options.output = {.replace = true};
    std::ignore = scenarios::export_dump(*facts.recording(), facts.tensors(), folder() / "dump", options);
  }
  look_at_window(facts);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fs::path path = folder() / "input.nanscope";
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(base().file.data(), static_cast<std::streamsize>(base().file.size()));
  change(path, data, size);
  use(path);
  return 0;
}
