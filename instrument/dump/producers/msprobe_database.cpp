#include "instrument/dump/producers/msprobe_database.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <system_error>

#include "core/recording/sqlite.h"

namespace nanscope {
namespace {

namespace fs = std::filesystem;

/// What a node takes in the file at least: its texts and numbers, and the cell around them.
constexpr std::uint64_t kLeastNode = 32;

constexpr const char* kNodes =
    "SELECT node_name, input_data, output_data, data_source, step, rank FROM tb_nodes ORDER BY step, rank, node_order";

/// SQLite's name of a file that nobody writes: its log is not looked for, and no file is made beside it.
std::string immutable_uri(const fs::path& path) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/";
  std::string uri = "file:";
  for (const char c : fs::absolute(path).string()) {
    uri += kPlain.find(c) != std::string_view::npos ? std::string(1, c)
                                                    : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return uri + "?immutable=1&mode=ro";
}

/// Nothing in the file may run code, reach other files or make us allocate beyond its size.
void harden(sqlite3* db, std::uint64_t bytes) {
  sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
  sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
  sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0, nullptr);
  sqlite3_limit(db, SQLITE_LIMIT_ATTACHED, 0);
  sqlite3_limit(db, SQLITE_LIMIT_VDBE_OP, 100'000);
  constexpr std::uint64_t kLongest = 256 << 20;
  sqlite3_limit(db, SQLITE_LIMIT_LENGTH, static_cast<int>(std::min(bytes + 4096, kLongest)));
  std::ignore = sqlite::execute(db, "PRAGMA cell_size_check = ON; PRAGMA mmap_size = 0; PRAGMA query_only = ON;");
}

/// The tensors of one side of a node, as its column has them; an empty text is none.
Result<JsonView> side_of(const std::string& text, const std::string& file, const std::string& node) {
  if (text.empty()) return JsonView();
  JsonLimits limits;
  limits.bare_words = true;
  const auto checked = check_json(text, limits);
  if (checked) return *checked;
  return fail(fmt::format("{}: table tb_nodes, node '{}': character {}: {}", file, node.substr(0, 120),
                          checked.error().offset, checked.error().what));
}

/// Whether the next row is of the run itself, and adds it.
Status add_row(const sqlite::Statement& row, const std::string& file, MsprobeTensors& tensors, MsprobeDatabase& out) {
  if (++out.nodes; row.text(3) != "NPU") {
    ++out.bench_nodes;
    return {};
  }
  const std::string name = row.text(0);
  const std::string inputs = row.text(1);
  const std::string outputs = row.text(2);
  const auto in = side_of(inputs, file, name);
  if (!in) return tl::unexpected(in.error());
  const auto result = side_of(outputs, file, name);
  if (!result) return tl::unexpected(result.error());
  return tensors.add_node(name, fmt::format("step{}/rank{}", row.integer(4), row.integer(5)), *in, *result);
}

}  // namespace

Result<MsprobeDatabase> read_msprobe_database(const fs::path& path) {
  const std::string file = path.string();
  std::error_code error;
  const std::uint64_t bytes = fs::file_size(path, error);
  if (error) return fail(fmt::format("{}: cannot be read: {}", file, error.message()));
  if (fs::file_size(file + "-wal", error) > 0 && !error) {
    return fail(fmt::format("{}: changes lie in {}-wal and not in it: open it once in sqlite3, which moves them", file,
                            path.filename().string()));
  }
  sqlite3* raw = nullptr;
  const int code = sqlite3_open_v2(immutable_uri(path).c_str(), &raw,
                                   SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX, nullptr);
  const sqlite::Database db(raw);
  if (code != SQLITE_OK) return fail(fmt::format("{}: {}", file, sqlite::describe(raw, code)));
  harden(db.get(), bytes);
  auto statement = sqlite::Statement::prepare(db.get(), kNodes);
  if (!statement) {
    return fail(fmt::format("{}: no table of msprobe's nodes, expected tb_nodes of a graph: {}", file,
                            statement.error().message));
  }
  MsprobeDatabase out;
  MsprobeTensors tensors(file, {}, bytes);
  for (;;) {
    const auto more = statement->step();
    if (!more) return fail(fmt::format("{}: {}", file, more.error().message));
    if (!*more) break;
    // Pages that occur twice in a damaged file would give rows without end.
    if (static_cast<std::uint64_t>(out.nodes) > bytes / kLeastNode) {
      return fail(fmt::format("{}: damaged: more than {} nodes in {} bytes", file, bytes / kLeastNode, bytes));
    }
    const auto added = add_row(*statement, file, tensors, out);
    if (!added) return tl::unexpected(added.error());
  }
  out.tensors = tensors.take();
  return out;
}

}  // namespace nanscope
