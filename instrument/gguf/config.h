#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "instrument/gguf/gguf_file.h"

namespace nanscope {

/// What the config.json of the model would say, from the metadata of a file that was converted from it, as JSON text.
/// `tensor` gives the values of a small tensor, none where there is no such tensor; `file` is what errors call the
/// file. Errors: an architecture that is not known; a key of the architecture that is missing, has another type, or is
/// not understood, by name.
Result<std::string> config_of_gguf(const GgufHeader& header, const std::string& file,
                                   const std::function<std::vector<float>(std::string_view tensor)>& tensor);

/// The model_type of a file; empty where the architecture is not known or not stated.
std::string_view model_type_of(const GgufHeader& header);

}  // namespace nanscope
