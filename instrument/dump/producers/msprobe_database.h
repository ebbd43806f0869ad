#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "instrument/dump/producers/msprobe_tensors.h"

/// The graph databases of msprobe, *.vis.db: SQLite files that `msprobe graph_visualize` makes of dump.json
/// (python/msprobe/visualization/db_utils.py has the schema).
namespace nanscope {

struct MsprobeDatabase {
  std::vector<MsprobeTensor> tensors;  ///< keys begin with "step0/rank0/"
  std::int64_t nodes = 0;
  std::int64_t bench_nodes = 0;  ///< of the run that it was compared with, which are not read
};

/// Reads the graph of the run itself, in the order of its nodes. The file is opened read-only and nothing is written
/// beside it. Error: damaged, another schema, a log of changes that were not written into it, more than a file of its
/// size may hold.
Result<MsprobeDatabase> read_msprobe_database(const std::filesystem::path& path);

}  // namespace nanscope
