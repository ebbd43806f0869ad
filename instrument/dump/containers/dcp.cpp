#include "instrument/dump/container.h"
#include "instrument/dump/containers/zip_archive.h"

namespace nanscope {
namespace {

/// A shard is many archives of torch.save behind each other; which tensor lies where is in `.metadata`, a pickle of
/// torch's own classes.
Result<std::unique_ptr<Container>> refuse_shard(const std::filesystem::path& path) {
  return fail(path.string() +
              ": a shard of torch.distributed.checkpoint, which nanscope does not read; convert the folder with "
              "python -m torch.distributed.checkpoint.format_utils dcp_to_torch FOLDER FILE.pt");
}

}  // namespace

ContainerKind dcp_container() { return {"dcp", {".distcp"}, is_zip, refuse_shard}; }

}  // namespace nanscope
