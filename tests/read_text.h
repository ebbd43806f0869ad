#pragma once
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace nanscope {

/// All of a file that a test wrote; empty where there is none.
inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace nanscope
