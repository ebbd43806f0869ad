#pragma once
#include <filesystem>
#include <string_view>

/// What comes with the program, found from where the running program lies: an installation can be moved, and holds no
/// path of the machine that built it.
namespace nanscope {

/// The folder of the running program, links resolved; empty where the system does not tell.
std::filesystem::path program_folder();

/// A file or folder that is only read: in share/nanscope of the installation (beside its bin), else in that of the
/// build (share/nanscope beside the program). Empty: in neither.
std::filesystem::path shared_file(std::string_view name, const std::filesystem::path& program = program_folder());

/// A library that other programs load: in lib/nanscope of the installation, else beside the program, where it is built.
/// Empty: in neither.
std::filesystem::path library_file(std::string_view name, const std::filesystem::path& program = program_folder());

}  // namespace nanscope
