#include "tests/ptx/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <optional>

namespace nanscope::ptx {
namespace {

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool in_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$' ||
         c == '%' || c == '.' || c == ':';
}

struct Token {
  std::string_view text;
  std::int32_t line = 0;
};

/// Words, with their dots, and single signs; comments are left out. A ':' belongs to the label before it.
std::vector<Token> tokens_of(std::string_view text) {
  std::vector<Token> tokens;
  std::int32_t line = 1;
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] == '\n') ++line;
    if (is_space(text[i])) {
      ++i;
    } else if (text.substr(i, 2) == "//") {
      i = std::min(text.find('\n', i), text.size());
    } else {
      std::size_t end = i;
      while (end < text.size() && in_word(text[end])) ++end;
      end = std::max(end, i + 1);
      tokens.push_back({text.substr(i, end - i), line});
      i = end;
    }
  }
  return tokens;
}

std::uint8_t width_of(std::string_view type) {
  if (type == ".pred") return 0;
  if (type.ends_with("16")) return 2;
  return type.ends_with("64") ? 8 : type.ends_with("8") ? 1 : 4;
}

std::optional<std::int64_t> integer(std::string_view text) {
  bool negative = false;
  if (text.starts_with('-')) {
    negative = true;
    text.remove_prefix(1);
  }
  int base = 10;
  if (text.starts_with("0x")) {
    base = 16;
    text.remove_prefix(2);
  }
  if (text.ends_with('U')) text.remove_suffix(1);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return static_cast<std::int64_t>(negative ? 0 - value : value);
}

/// The bits of "0f3F800000" or "0d3FF0000000000000", or of an integer.
std::optional<std::uint64_t> constant(std::string_view text) {
  if (text.starts_with("0f") || text.starts_with("0d")) {
    std::uint64_t bits = 0;
    const auto [end, error] = std::from_chars(text.data() + 2, text.data() + text.size(), bits, 16);
    if (error == std::errc{} && end == text.data() + text.size()) return bits;
  }
  const auto whole = integer(text);
  return whole ? std::optional(static_cast<std::uint64_t>(*whole)) : std::nullopt;
}

/// Where a symbol lies, as an address in its window.
struct Symbol {
  std::uint64_t address = 0;
  std::uint32_t bytes = 0;
};

class Reader {
 public:
  explicit Reader(std::string_view text) : tokens_(tokens_of(text)) {}

  Result<Program> read() {
    while (problem_.empty() && !at_end()) module_level();
    resolve_calls();
    if (!problem_.empty()) return tl::unexpected(Error{problem_});
    return std::move(program_);
  }

 private:
  bool at_end() const { return next_ >= tokens_.size(); }
  std::string_view peek() const { return at_end() ? std::string_view{} : tokens_[next_].text; }
  std::string_view take() {
    const std::string_view text = peek();
    if (!at_end()) line_ = tokens_[next_].line;
    ++next_;
    return text;
  }
  bool take_if(std::string_view text) {
    if (peek() != text) return false;
    take();
    return true;
  }
  void expect(std::string_view text) {
    if (!take_if(text)) report(fmt::format("'{}' expected, '{}' found", text, peek()));
  }
  void report(const std::string& text) {
    if (problem_.empty()) problem_ = fmt::format("line {}: {}", line_, text);
    next_ = tokens_.size();
  }
  std::int64_t take_integer() {
    std::string text;
    if (take_if("-")) text = "-";
    text += take();
    const auto value = integer(text);
    if (!value) report(fmt::format("a number expected, '{}' found", text));
    return value.value_or(0);
  }

  void module_level() {
    const std::string_view word = take();
    if (word == ".version" || word == ".target" || word == ".address_size") {
      take();
      while (take_if(",")) take();
    } else if (word == ".shared") {
      declare(kSharedWindow, program_.shared_bytes);
      expect(";");
      shared_ = symbols_;
    } else if (word == ".visible" || word == ".weak" || word == ".extern") {
      return;
    } else if (word == ".entry" || word == ".func") {
      function(word == ".entry");
    } else {
      report(fmt::format("'{}' is not known here", word));
    }
  }

  /// ".param .align 4 .b8 name[12]"; what is given is its place in the window.
  std::uint32_t parameter() {
    expect(".param");
    return declare(kParamWindow, program_.param_bytes);
  }

  std::uint32_t declare(std::uint64_t window, std::uint32_t& end) {
    std::uint32_t align = 0;
    if (take_if(".align")) align = static_cast<std::uint32_t>(take_integer());
    const std::uint32_t element = std::max<std::uint32_t>(1, width_of(take()));
    const std::string name(take());
    std::uint32_t count = 1;
    if (take_if("[")) {
      count = static_cast<std::uint32_t>(take_integer());
      expect("]");
    }
    align = std::max({align, element, std::uint32_t{8}});
    const std::uint32_t at = (end + align - 1) / align * align;
    symbols_[name] = {window + at, element * count};
    end = at + element * count;
    return at;
  }

  void parameters(Function& function) {
    if (!take_if("(")) return;
    while (problem_.empty() && !take_if(")")) {
      const std::uint32_t at = parameter();
      function.parameters.push_back(at);
      function.parameter_bytes.push_back(program_.param_bytes - at);
      take_if(",");
    }
  }

  void function(bool entry) {
    Function made;
    made.entry = entry;
    symbols_ = shared_;
    registers_.clear();
    constants_.clear();
    labels_.clear();
    Function results;
    parameters(results);
    made.name = take();
    parameters(made);
    // Results come behind the parameters.
    made.parameters.insert(made.parameters.end(), results.parameters.begin(), results.parameters.end());
    made.parameter_bytes.insert(made.parameter_bytes.end(), results.parameter_bytes.begin(),
                                results.parameter_bytes.end());
    while (peek().starts_with(".max") || peek().starts_with(".min") || peek() == ".noreturn") {
      take();
      while (peek() != "{" && peek() != ";" && !peek().starts_with('.')) take();
    }
    if (take_if(";")) return;  // a declaration
    expect("{");
    for (const char* name : {"%tid.x", "%ctaid.x", "%nctaid.x", "%ntid.x"}) {
      registers_[name] = allocate(made, 4);
    }
    made.tid = registers_["%tid.x"];
    made.ctaid = registers_["%ctaid.x"];
    made.nctaid = registers_["%nctaid.x"];
    made.ntid = registers_["%ntid.x"];
    int depth = 1;
    while (problem_.empty() && depth > 0) {
      if (at_end()) return report("the end of a function is missing");
      if (take_if("{")) {
        ++depth;
      } else if (take_if("}")) {
        --depth;
      } else {
        statement(made);
      }
    }
    for (Instruction& of : made.code) {
      if (of.control != Control::branch) continue;
      const auto label = labels_.find(branch_labels_[static_cast<std::size_t>(of.target)]);
      if (label == labels_.end()) return report("a branch to a label that does not exist");
      of.target = label->second;
    }
    branch_labels_.clear();
    program_.functions.push_back(std::move(made));
  }

  Operand allocate(Function& function, std::uint8_t width) {
    const std::size_t bytes = width == 0 ? 4 : std::size_t{width} * kLanes;
    const std::size_t at = (function.registers.size() + 63) / 64 * 64;
    function.registers.resize(at + bytes);
    return {static_cast<std::uint32_t>(at), width, true};
  }

  /// ".reg .b32 %r<105>;" or ".reg .b64 %SP;"
  void registers(Function& function) {
    const std::uint8_t width = std::max<std::uint8_t>(width_of(peek()), peek() == ".pred" ? 0 : 2);
    take();
    do {
      const std::string name(take());
      if (take_if("<")) {
        const std::int64_t count = take_integer();
        expect(">");
        for (std::int64_t i = 0; i < count; ++i) registers_[name + std::to_string(i)] = allocate(function, width);
      } else {
        registers_[name] = allocate(function, width);
      }
    } while (take_if(","));
    expect(";");
  }

  void statement(Function& function) {
    const std::string_view word = peek();
    if (word.ends_with(':')) {
      take();
      labels_[std::string(word.substr(0, word.size() - 1))] = static_cast<std::int32_t>(function.code.size());
    } else if (take_if(".reg")) {
      registers(function);
    } else if (word == ".local" || word == ".param" || word == ".shared") {
      take();
      if (word == ".local") {
        declare(kLocalWindow, program_.local_bytes);
      } else if (word == ".shared") {
        declare(kSharedWindow, program_.shared_bytes);
        function.has_shared = true;
      } else {
        declare(kParamWindow, program_.param_bytes);
      }
      expect(";");
    } else if (word == ".pragma" || word == ".loc" || word == ".file") {
      while (problem_.empty() && take() != ";") {
      }
    } else {
      instruction(function);
    }
  }

  void instruction(Function& function) {
    Instruction made;
    if (take_if("@")) {
      made.guard_negated = take_if("!");
      made.guard = register_of(take());
    }
    const std::string name(take());
    made.line = line_;
    made.name = name_index(name);
    if (name == "bra" || name == "bra.uni") {
      made.control = Control::branch;
      made.target = static_cast<std::int32_t>(branch_labels_.size());
      branch_labels_.emplace_back(take());
    } else if (name == "ret" || name == "ret.uni" || name == "exit") {
      made.control = Control::ret;
    } else if (name == "call.uni" || name == "call") {
      made.control = Control::call;
      call(function, made);
    } else if (name == "bar.sync") {  // of all threads of the block
      made.control = Control::barrier;
      function.has_barriers = true;
      if (const std::string_view barrier = take(); barrier != "0") {
        return report(fmt::format("barrier {} is not known", barrier));
      }
    } else {
      const bool halves = (name == "mov.b64" || name == "mov.b32") && halves_follow();
      const InstructionForm* form = instruction_form(!halves ? name : name + (peek() == "{" ? "{}=" : "={}"));
      if (form == nullptr) return report(fmt::format("instruction '{}' is not known", name));
      made.run = form->run;
      made.converges = form->converges;
      made.whole_warp = form->whole_warp;
      made.fma = name == "fma.rn.f32";
      made.mma = name.starts_with("mma.sync.");
      if (form->copies) {
        copy(function, made);
      } else if (form->bytes > 0) {
        access(function, made, *form, name);
      } else {
        operands(function, made, *form);
      }
    }
    expect(";");
    function.code.push_back(made);
  }

  /// Whether a brace stands before the end of the statement.
  bool halves_follow() const {
    for (std::size_t i = next_; i < tokens_.size() && tokens_[i].text != ";"; ++i) {
      if (tokens_[i].text == "{") return true;
    }
    return false;
  }

  void operands(Function& function, Instruction& made, const InstructionForm& form) {
    for (std::size_t i = 0; i < form.operands.size() && problem_.empty(); ++i) {
      if (i > 0 && take_if("|")) {
        made.operands[i] = operand(function, form.operands[i]);
        continue;
      }
      // The second result of a shuffle may be left out.
      if (i == 1 && form.operands[i].written && form.operands[i].width == 0) continue;
      if (i > 0) expect(",");
      take_if("{");
      made.operands[i] = operand(function, form.operands[i]);
      take_if("}");
    }
  }

  /// "ld.global.v2.u32 {%r1, %r2}, [%rd1+8]" or "st.local.u8 [%rd1], %rs1".
  void access(Function& function, Instruction& made, const InstructionForm& form, const std::string& name) {
    made.elements = form.elements;
    const auto space = [&](std::string_view word) { return name.find("." + std::string(word)) != std::string::npos; };
    made.space = space("global")   ? Space::global
                 : space("local")  ? Space::local
                 : space("param")  ? Space::param
                 : space("shared") ? Space::shared
                                   : Space::generic;
    if (form.stores) {
      address(function, made, form.elements);
      expect(",");
      elements(function, made, form);
    } else {
      elements(function, made, form);
      expect(",");
      address(function, made, form.elements);
    }
  }

  /// "cp.async.cg.shared.global [%r1], [%rd1+8], 16;"
  void copy(Function& function, Instruction& made) {
    made.elements = 4;  // as a load of four words
    made.space = Space::shared;
    address(function, made, 0);
    std::swap(made.offset, made.second_offset);
    made.space = Space::global;
    expect(",");
    address(function, made, 1);
    std::swap(made.offset, made.second_offset);
    expect(",");
    if (take_integer() != 16) report("a copy of other than 16 bytes is not known");
  }

  void elements(Function& function, Instruction& made, const InstructionForm& form) {
    if (form.elements > 1) expect("{");
    for (std::size_t i = 0; i < form.elements && problem_.empty(); ++i) {
      if (i > 0) expect(",");
      OperandForm of = form.operands[i];
      made.operands[i] = operand(function, of, std::max<std::uint8_t>(form.bytes, 2));
    }
    if (form.elements > 1) expect("}");
  }

  void address(Function& function, Instruction& made, std::size_t index) {
    expect("[");
    made.operands[index] = operand(function, {made.space == Space::shared ? kAnyWidth : std::uint8_t{8}, false}, 8);
    if (take_if("+")) made.offset = take_integer();
    expect("]");
  }

  /// A register, a symbol's address or a constant. `constant_width`: of a constant where any register would do.
  Operand operand(Function& function, const OperandForm& form, std::uint8_t constant_width = 4) {
    std::string text;
    if (take_if("-")) text = "-";
    text += take();
    if (text == "_") return {};
    if (const auto found = registers_.find(text); found != registers_.end()) {
      const bool fits = form.width == found->second.width || (form.width == kAnyWidth && found->second.width > 0);
      if (!fits) report(fmt::format("register {} is not as wide as the instruction", text));
      return found->second;
    }
    if (form.written) {
      report(fmt::format("'{}' cannot be written", text));
      return {};
    }
    const std::uint8_t width = form.width == kAnyWidth ? constant_width : form.width;
    if (const auto symbol = symbols_.find(text); symbol != symbols_.end()) {
      return constant_of(function, symbol->second.address, width);
    }
    const auto bits = constant(text);
    if (!bits) report(fmt::format("'{}' is not known", text));
    return constant_of(function, bits.value_or(0), width);
  }

  Operand register_of(std::string_view name) {
    const auto found = registers_.find(std::string(name));
    if (found != registers_.end()) return found->second;
    report(fmt::format("'{}' is no register", name));
    return {};
  }

  Operand constant_of(Function& function, std::uint64_t bits, std::uint8_t width) {
    const auto [found, is_new] = constants_.try_emplace({bits, width});
    if (!is_new) return found->second;
    found->second = allocate(function, width);
    std::byte* to = function.registers.data() + found->second.at;
    if (width == 0) {
      const std::uint32_t all = bits != 0 ? ~0U : 0U;
      std::memcpy(to, &all, sizeof(all));
    }
    for (std::size_t lane = 0; width > 0 && lane < kLanes; ++lane) std::memcpy(to + lane * width, &bits, width);
    return found->second;
  }

  /// "(retval0), name, (param0, param1)"
  void call(Function& function, Instruction& made) {
    std::vector<Symbol> results;
    if (peek() == "(") {
      results = symbols_in_parentheses();
      expect(",");
    }
    const std::string callee(take());
    std::vector<Symbol> given;
    if (take_if(",")) given = symbols_in_parentheses();
    made.call = static_cast<std::int32_t>(function.calls.size());
    function.calls.emplace_back();
    pending_.push_back({program_.functions.size(), static_cast<std::size_t>(made.call), function.code.size(), callee,
                        given, results, line_});
  }

  std::vector<Symbol> symbols_in_parentheses() {
    std::vector<Symbol> all;
    expect("(");
    while (problem_.empty() && !take_if(")")) {
      const auto found = symbols_.find(std::string(take()));
      if (found == symbols_.end()) {
        report("a parameter that is not declared");
        return all;
      }
      all.push_back(found->second);
      take_if(",");
    }
    return all;
  }

  void resolve_calls() {
    for (const Pending& of : pending_) {
      line_ = of.line;
      const auto callee = std::find_if(program_.functions.begin(), program_.functions.end(),
                                       [&](const Function& one) { return one.name == of.callee; });
      if (callee == program_.functions.end()) return report(fmt::format("function '{}' is not there", of.callee));
      if (callee->parameters.size() != of.given.size() + of.results.size()) {
        return report(fmt::format("a call of '{}' with other parameters", of.callee));
      }
      Function& caller = program_.functions[of.caller];
      Call& call = caller.calls[of.call];
      for (std::size_t i = 0; i < callee->parameters.size(); ++i) {
        const bool result = i >= of.given.size();
        const Symbol& here = result ? of.results[i - of.given.size()] : of.given[i];
        const auto at = static_cast<std::uint32_t>(here.address - kParamWindow);
        if (result) {
          call.after.push_back({callee->parameters[i], at, here.bytes});
        } else {
          call.before.push_back({at, callee->parameters[i], here.bytes});
        }
      }
      caller.code[of.instruction].target = static_cast<std::int32_t>(callee - program_.functions.begin());
    }
  }

  std::int32_t name_index(const std::string& name) {
    const auto [found, is_new] = name_indices_.try_emplace(name, static_cast<std::int32_t>(program_.names.size()));
    if (is_new) program_.names.push_back(name);
    return found->second;
  }

  struct Pending {
    std::size_t caller, call, instruction;
    std::string callee;
    std::vector<Symbol> given;
    std::vector<Symbol> results;
    std::int32_t line;
  };

  std::vector<Token> tokens_;
  std::size_t next_ = 0;
  std::int32_t line_ = 0;
  std::string problem_;
  Program program_;
  std::map<std::string, Symbol> symbols_;
  std::map<std::string, Symbol> shared_;  ///< those of the module
  std::map<std::string, Operand> registers_;
  std::map<std::pair<std::uint64_t, std::uint8_t>, Operand> constants_;
  std::map<std::string, std::int32_t> labels_;
  std::vector<std::string> branch_labels_;
  std::vector<Pending> pending_;
  std::map<std::string, std::int32_t> name_indices_;
};

}  // namespace

const Function* Program::entry(std::string_view part) const {
  for (const Function& function : functions) {
    if (function.entry && function.name.find(part) != std::string::npos) return &function;
  }
  return nullptr;
}

Result<Program> read_program(std::string_view text) {
  Result<Program> program = Reader(text).read();
  if (const std::size_t at = text.find("release "); program && at != std::string_view::npos) {
    program->compiler = text.substr(at, text.find('\n', at) - at);
  }
  return program;
}

}  // namespace nanscope::ptx
