#pragma once
#include <memory>

#include "instrument/dump/container.h"
#include "instrument/dump/containers/file_bytes.h"

namespace nanscope {

/// What torch.save writes since PyTorch 1.6: a zip of a pickle and of storages (docs.pytorch.org/docs/
/// stable/notes/serialization.html; torch/_utils.py has the functions that the pickle calls).
///
/// Keys of nested dictionaries, lists and tuples are joined by '.', in their order. Tensors that share a
/// storage are views of the same bytes; those that are not row-major are gathered when they are read, but
/// never to more than four times their storage (an expanded tensor is skipped with a reason). Numbers,
/// texts, flags, sizes, dtypes and devices become metadata. The pickle is not run: what is not needed for
/// all this is refused by name and offset, and so is the format before 1.6.
Result<std::unique_ptr<Container>> open_pt(FileBytes file);

}  // namespace nanscope
