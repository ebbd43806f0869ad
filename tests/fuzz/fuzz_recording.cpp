#include <sqlite3.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/place.h"
#include "core/recording/reader.h"
#include "core/recording/writer.h"
#include "core/run/find_place.h"
#include "core/run/recording_view.h"
#include "tests/fuzz/allocation_limit.h"

/// The reader of recordings on hostile bytes. An even first byte: the rest is the file. An odd one:
/// the rest is a list of patches (u16 offset in units of 1 byte, u8 page, u8 value) upon a small
/// valid recording, which reaches deep into the tables without the fuzzer having to learn SQLite.
namespace {

namespace fs = std::filesystem;
using namespace nanscope;

fs::path folder() {
  static const fs::path path = [] {
    const fs::path base = fs::exists("/dev/shm") ? fs::path("/dev/shm") : fs::temp_directory_path();
    std::string name = (base / "nanscope-fuzz-XXXXXX").string();
    const fs::path made = mkdtemp(name.data());
    static const struct Cleanup {
      fs::path path;
      ~Cleanup() { fs::remove_all(path); }
    } cleanup{made};
    return made;
  }();
  return path;
}

void write_sample(const fs::path& path) {
  auto writer = RecordingWriter::create(path, RunInfo{}).value();
  writer->add(RequestRow{0, "r", "[]", {1, 2}, 0, {3}, "!"});
  for (std::int64_t step = 1; step <= 3; ++step) {
    StepRow row{step, 0, step - 1, StepKind::prefill, 0, 4, 4};
    row.batch = 2;
    row.spans = {{0, step - 1, 0, 2, 0, 2}, {1, step - 1, 3, 1, 5, 6}};
    writer->add(row);
    for (std::int64_t op = step * 4 - 3; op <= step * 4; ++op) {
      const InputRow inputs[] = {{op, "x", op - 1, ""}, {op, "weight", 0, "w"}};
      writer->add(OpRow{op, step, op % 4 - 1, "norm", "layer_norm", "{}"}, inputs);
      TensorRow tensor;
      tensor.id = tensor.op = op;
      tensor.role = "out";
      tensor.tokens = 4;
      tensor.channels = 600;
      tensor.health.nan = op > 6 ? 1 : 0;
      tensor.axis = static_cast<Axis>(op % 7);
      tensor.sequence = op % 3 - 1;
      writer->add(
          tensor,
          {std::vector<Health>(4), std::vector<Health>(static_cast<std::size_t>(level_shape(4, 600, 0).tiles()))},
          op % 4 == 0 ? std::vector<std::byte>(9600) : std::vector<std::byte>{});
    }
    ScaleRow scale;
    scale.step = scale.op = step;
    scale.target = "k";
    writer->add(scale);
    KvRow kv;
    kv.step = step;
    kv.block = 1;
    kv.slot_end = 4;
    writer->add(kv);
    writer->add(TokenRow{0, step, 5, "t", TokenSource::prompt});
    writer->add(KernelRow{step, "k", 1, 2, "{}"});
    if (!writer->commit_step()) std::abort();
  }
  writer->add(RunNote{"t", "note"});
  writer->add(WeightRow{"w", Format::f32, 2, 2, 1, Health{}});
  if (!writer->finish(12)) std::abort();
}

/// The sample with small pages and without views, so that a patch is likely to matter.
const std::vector<char>& base_image() {
  static const std::vector<char> image = [] {
    const fs::path large = folder() / "base";
    const fs::path small = folder() / "small";
    write_sample(large);
    sqlite3* db = nullptr;
    sqlite3_open(large.c_str(), &db);
    std::string sql;
    sqlite3_exec(
        db, "SELECT name FROM sqlite_schema WHERE type = 'view'",
        [](void* into, int, char** row, char**) {
          *static_cast<std::string*>(into) += std::string("DROP VIEW ") + row[0] + ";";
          return 0;
        },
        &sql, nullptr);
    sql += "PRAGMA page_size = 1024; VACUUM INTO '" + small.string() + "'";
    if (sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) std::abort();
    sqlite3_close(db);
    std::ifstream file(small, std::ios::binary);
    return std::vector<char>(std::istreambuf_iterator<char>(file), {});
  }();
  return image;
}

/// Whose rows the tensors' rows are said to be.
void look_at_rows(const Recording& recording) {
  RecordingRun rows(recording);
  NoTensors nothing;
  RecordingView view(rows, nothing);
  for (const Step& step : view.steps()) {
    if (step.id > 8) break;
    const StepContent& content = view.content(step.id);
    for (std::size_t i = 0; i < std::min<std::size_t>(content.tensors.size(), 16); ++i) {
      const Tensor& tensor = content.tensors[i];
      for (const std::int64_t row : {std::int64_t{0}, tensor.tokens - 1, tensor.tokens}) {
        const RowToken token = view.token_of(tensor, row);
        if (token.span != nullptr) std::ignore = view.row_at(tensor, *token.span, token.position);
      }
    }
  }
}

void read_everything(const fs::path& path) {
  auto recording = Recording::open(path);
  if (!recording) return;
  std::ignore = recording->state();
  std::ignore = recording->counts();
  std::ignore = recording->requests();
  std::ignore = recording->steps();
  std::ignore = recording->first_bad_op();
  std::ignore = recording->weights();
  std::ignore = recording->scales();
  std::ignore = recording->kv_history();
  std::ignore = recording->tokens(0);
  std::ignore = recording->kernels();
  std::ignore = recording->events();
  std::ignore = recording->notes();
  look_at_rows(*recording);
  OpFilter ops;
  ops.limit = 50;
  std::ignore = recording->for_each_op(ops, [&](const OpRow& op) {
    std::ignore = recording->inputs_of(op.id);
    std::ignore = recording->tensors_of(op.id);
    return true;
  });
  TensorFilter step;
  step.step = 2;
  std::ignore = recording->tensors(step);
  TensorFilter tensors;
  tensors.limit = 50;
  std::ignore = recording->for_each_tensor(tensors, [&](const TensorRow& tensor) {
    std::ignore = recording->token_health(tensor.id);
    std::ignore = recording->tiles(tensor.id, 0);
    std::ignore = recording->tiles(tensor.id, 1);
    std::ignore = recording->tensor_bytes(tensor.id);
    std::ignore = place_of(*recording, tensor, tensor.health.first_bad);
    return true;
  });
  RecordingRun rows(*recording);
  StoredTensors elements(*recording);
  RecordingView run(rows, elements);
  std::ignore = find_place(run, "0/1/2/norm.out[1,2]");
  std::ignore = recording->check();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::vector<char> image;
  if (data[0] % 2 == 0) {
    image.assign(data + 1, data + size);
  } else {
    image = base_image();
    for (std::size_t i = 1; i + 4 <= size; i += 4) {
      const std::size_t offset = (std::size_t{data[i]} << 8 | data[i + 1]) % 1024 + std::size_t{data[i + 2]} * 1024;
      image[offset % image.size()] = static_cast<char>(data[i + 3]);
    }
  }
  const fs::path path = folder() / "input";
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(image.data(), static_cast<std::streamsize>(image.size()));
  // SQLite's cache of pages (2 MiB), its statements, and rows, which take less room in a file than read.
  const fuzz::AllocationLimit limit(16 * image.size() + (8 << 20));
  read_everything(path);
  return 0;
}
