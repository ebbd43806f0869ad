#pragma once
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

namespace nanscope::gui {

struct ModelCheckOptions {
  std::filesystem::path dump;
  std::filesystem::path model;    ///< the checkpoint's folder
  std::filesystem::path adapter;  ///< a LoRA adapter that was served merged; empty: none
  std::set<std::int64_t> layers;  ///< empty: all, as of VerifyOptions
  std::vector<std::string> ops;
  bool follow_links = false;
};

}  // namespace nanscope::gui
