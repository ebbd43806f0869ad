#include "instrument/dump/containers/pickle.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string>
#include <utility>

#include "instrument/dump/containers/file_bytes.h"
#include "instrument/files/file.h"

namespace nanscope {
namespace {

/// pickletools.opcodes, as far as data needs them.
enum class Opcode : std::uint8_t {
  mark = '(',
  stop = '.',
  pop = '0',
  pop_mark = '1',
  binfloat = 'G',
  binint = 'J',
  binint1 = 'K',
  binint2 = 'M',
  none = 'N',
  binpersid = 'Q',
  reduce = 'R',
  binstring = 'T',
  short_binstring = 'U',
  binunicode = 'X',
  append = 'a',
  build = 'b',
  global = 'c',
  appends = 'e',
  binget = 'h',
  long_binget = 'j',
  binput = 'q',
  long_binput = 'r',
  setitem = 's',
  tuple = 't',
  setitems = 'u',
  empty_tuple = ')',
  empty_list = ']',
  empty_dict = '}',
  binbytes = 'B',
  short_binbytes = 'C',
  proto = 0x80,
  newobj = 0x81,
  tuple1 = 0x85,
  tuple2 = 0x86,
  tuple3 = 0x87,
  newtrue = 0x88,
  newfalse = 0x89,
  long1 = 0x8a,
  long4 = 0x8b,
  short_binunicode = 0x8c,
  binunicode8 = 0x8d,
  binbytes8 = 0x8e,
  stack_global = 0x93,
  memoize = 0x94,
  frame = 0x95,
};

struct OpcodeName {
  std::uint8_t code;
  std::string_view name;
};

/// Those that are refused, so that the message can name them.
constexpr auto kRefused = std::to_array<OpcodeName>({
    {'2', "DUP"},        {'F', "FLOAT"},       {'I', "INT"},          {'L', "LONG"},
    {'P', "PERSID"},     {'S', "STRING"},      {'V', "UNICODE"},      {'d', "DICT"},
    {'g', "GET"},        {'i', "INST"},        {'l', "LIST"},         {'o', "OBJ"},
    {'p', "PUT"},        {0x81, "NEWOBJ"},     {0x82, "EXT1"},        {0x83, "EXT2"},
    {0x84, "EXT4"},      {0x8f, "EMPTY_SET"},  {0x90, "ADDITEMS"},    {0x91, "FROZENSET"},
    {0x92, "NEWOBJ_EX"}, {0x96, "BYTEARRAY8"}, {0x97, "NEXT_BUFFER"}, {0x98, "READONLY_BUFFER"},
});

std::string opcode_name(std::uint8_t code) {
  const auto named =
      std::find_if(kRefused.begin(), kRefused.end(), [&](const OpcodeName& o) { return o.code == code; });
  if (named != kRefused.end()) return std::string(named->name);
  constexpr std::string_view kDigits = "0123456789abcdef";
  return std::string("0x") + kDigits[code >> 4] + kDigits[code & 15U];
}

class PickleReader {
 public:
  PickleReader(std::span<const std::byte> bytes, std::string_view file, std::uint64_t base, KnownGlobal known,
               ReadBudget& budget, PickleOptions options)
      : bytes_(bytes), file_(file), base_(base), known_(known), budget_(budget), options_(options) {
    pickle_.bytes = as_text(bytes);
  }

  Result<Pickle> read() {
    if (bytes_.size() > kMaxPickleBytes) {
      return refuse(file_, base_,
                    "a pickle of " + std::to_string(bytes_.size()) + " bytes, expected at most " +
                        std::to_string(kMaxPickleBytes));
    }
    const auto protocol = check_protocol();
    if (!protocol) return tl::unexpected(protocol.error());
    while (!stopped_) {
      opcode_at_ = at_;
      const auto code = take<std::uint8_t>();
      if (!code) return tl::unexpected(code.error());
      const auto done = run(static_cast<Opcode>(*code));
      if (!done) return tl::unexpected(done.error());
    }
    if (options_.length != nullptr) {
      *options_.length = at_;
    } else if (at_ != bytes_.size()) {
      return refused("more bytes behind the pickle's end, expected none");
    }
    if (stack_.size() != 1 || !marks_.empty()) return refused("a pickle that ends with more or less than one value");
    pickle_.root = stack_.front();
    return std::move(pickle_);
  }

 private:
  tl::unexpected<Error> refused(const std::string& what) const { return refuse(file_, base_ + opcode_at_, what); }
  tl::unexpected<Error> truncated() const {
    return refuse(file_, base_ + bytes_.size(), "the pickle ends inside an opcode (truncated?), expected its end mark");
  }
  std::uint64_t left() const { return bytes_.size() - at_; }

  template <class T>
  Result<T> take() {
    if (left() < sizeof(T)) return truncated();
    const T value = little_endian<T>(bytes_, at_);
    at_ += sizeof(T);
    return value;
  }

  Result<std::string_view> take_text(std::uint64_t length) {
    if (length > left()) return truncated();
    const std::string_view text = as_text(bytes_.subspan(at_, length));
    at_ += length;
    return text;
  }

  template <class Length>
  Result<std::string_view> take_counted() {
    const auto length = take<Length>();
    if (!length) return tl::unexpected(length.error());
    return take_text(*length);
  }

  Status check_protocol() {
    if (bytes_.size() < 2) return truncated();
    const int protocol = std::to_integer<int>(bytes_[1]);
    if (bytes_[0] != std::byte{0x80} || protocol < 2 || protocol > 5) {
      return refused("no pickle of protocol 2 to 5, expected what torch.save writes");
    }
    at_ = 2;
    return {};
  }

  tl::unexpected<Error> too_much() const {
    return refused("the " + std::to_string(pickle_.nodes.size()) +
                   " values of the pickle so far would take more than four times the file in memory, expected fewer");
  }

  /// Makes room for `more` numbers and charges it: a list that doubles is there one and a half times for a moment.
  bool make_room(std::vector<std::uint32_t>& list, std::size_t more) {
    if (list.capacity() - list.size() >= more) return true;
    const std::size_t room = std::max({std::size_t{64}, 2 * list.capacity(), list.size() + more});
    if (!budget_.take((room - list.capacity()) * sizeof(std::uint32_t) * 3 / 2)) return false;
    list.reserve(room);
    return true;
  }

  Status push_place(std::uint32_t place) {
    if (!make_room(stack_, 1)) return too_much();
    stack_.push_back(place);
    return {};
  }

  Status push(PickleNode node) {
    if (!budget_.take(kNodeBytes)) return too_much();
    node.offset = static_cast<std::uint32_t>(opcode_at_);
    auto place = push_place(static_cast<std::uint32_t>(pickle_.nodes.size()));
    if (place) pickle_.nodes.push_back(node);
    return place;
  }
  Status push_integer(std::int64_t value) { return push({.kind = PickleKind::integer, .integer = value}); }
  Status push_flag(bool value) { return push({.kind = PickleKind::boolean, .integer = value ? 1 : 0}); }
  Status push_view(PickleKind kind, std::string_view text, std::int64_t integer = 0) {
    const auto first = static_cast<std::uint32_t>(text.data() - pickle_.bytes.data());
    return push({.kind = kind, .first = first, .count = static_cast<std::uint32_t>(text.size()), .integer = integer});
  }
  template <class Length>
  Status push_text(PickleKind kind) {
    const auto text = take_counted<Length>();
    if (!text) return tl::unexpected(text.error());
    return push_view(kind, *text);
  }
  template <class T>
  Status push_number() {
    const auto value = take<T>();
    if (!value) return tl::unexpected(value.error());
    return push_integer(static_cast<std::int64_t>(*value));
  }

  /// Values above the last mark, or above the stack's bottom: an opcode may not reach below a mark.
  std::size_t available() const { return stack_.size() - (marks_.empty() ? 0 : marks_.back()); }

  Result<std::uint32_t> pop() {
    if (available() == 0) return refused("an opcode that needs a value where there is none");
    const std::uint32_t top = stack_.back();
    stack_.pop_back();
    return top;
  }

  /// The topmost values, which stay in the stack's memory until something is pushed.
  Result<std::span<const std::uint32_t>> pop_many(std::size_t count) {
    if (available() < count) return refused("an opcode that needs more values than there are");
    const std::span<const std::uint32_t> items(stack_.data() + (stack_.size() - count), count);
    stack_.resize(stack_.size() - count);
    return items;
  }

  Result<std::span<const std::uint32_t>> pop_to_mark() {
    if (marks_.empty()) return refused("an opcode that needs a mark where there is none");
    auto items = pop_many(available());
    marks_.pop_back();
    return items;
  }

  /// Appends items to those of a node, which move to the end of the list when there is no room behind them.
  Status add_items(PickleNode& node, std::span<const std::uint32_t> items) {
    auto& all = pickle_.all_items;
    const std::size_t wanted = node.count + items.size();
    if (wanted > static_cast<std::size_t>(node.integer)) {
      const std::size_t room = node.count == 0 ? wanted : std::max<std::size_t>(wanted, 2 * std::size_t{node.count});
      if (all.size() + room > kMostItems || !make_room(all, room)) return too_much();
      const std::size_t first = all.size();
      all.resize(first + room);
      std::copy_n(all.begin() + node.first, node.count, all.begin() + static_cast<std::ptrdiff_t>(first));
      node.first = static_cast<std::uint32_t>(first);
      node.integer = static_cast<std::int64_t>(room);
    }
    std::copy(items.begin(), items.end(), all.begin() + node.first + node.count);
    node.count = static_cast<std::uint32_t>(wanted);
    return {};
  }

  Status push_holder(PickleKind kind, Result<std::span<const std::uint32_t>> items) {
    if (!items) return tl::unexpected(items.error());
    PickleNode node{.kind = kind};
    const auto added = add_items(node, *items);
    return added ? push(node) : added;
  }

  /// Adds items to the value below them.
  Status extend(Result<std::span<const std::uint32_t>> items, bool pairs) {
    if (!items) return tl::unexpected(items.error());
    if (available() == 0) return refused("items without a list or dictionary to put them in");
    PickleNode& target = pickle_.nodes[stack_.back()];
    const bool fits =
        pairs ? target.kind == PickleKind::dict || target.kind == PickleKind::call : target.kind == PickleKind::list;
    if (!fits) return refused("items put in a value that holds none");
    if (pairs && items->size() % 2 != 0) return refused("a key without a value");
    return add_items(target, *items);
  }

  /// Numbers of the memo are given one after the other, from 0 or, by old writers, from 1.
  Status put(std::uint64_t number) {
    if (available() == 0) return refused("nothing to remember");
    if (number > memo_.size() + 1) return refused("a memo that skips numbers");
    while (number >= memo_.size()) {
      if (!make_room(memo_, 1)) return too_much();
      memo_.push_back(kUnset);
    }
    memo_[number] = stack_.back();
    return {};
  }

  Status get(std::uint64_t number) {
    if (number >= memo_.size() || memo_[number] == kUnset)
      return refused("memo " + std::to_string(number) + " is read before it is written");
    return push_place(memo_[number]);
  }

  template <class Number>
  Status put_taken() {
    const auto number = take<Number>();
    if (!number) return tl::unexpected(number.error());
    return put(*number);
  }
  template <class Number>
  Status get_taken() {
    const auto number = take<Number>();
    if (!number) return tl::unexpected(number.error());
    return get(*number);
  }

  Status push_long(Result<std::string_view> digits) {
    if (!digits) return tl::unexpected(digits.error());
    if (digits->size() > 8) return push_view(PickleKind::wide_integer, *digits);
    std::uint64_t value = !digits->empty() && (digits->back() & 0x80) != 0 ? ~std::uint64_t{0} : 0;
    for (std::size_t i = digits->size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>((*digits)[i]);
    return push_integer(static_cast<std::int64_t>(value));
  }

  Status push_real() {
    const auto text = take_text(8);
    if (!text) return tl::unexpected(text.error());
    std::uint64_t bits = 0;
    for (const char c : *text) bits = bits << 8 | static_cast<unsigned char>(c);
    return push({.kind = PickleKind::real, .integer = std::bit_cast<std::int64_t>(bits)});
  }

  Status push_global(std::string_view module, std::string_view name) {
    const auto number = known_(module, name);
    if (!number) {
      return refused("the pickle wants " + printable(module) + "." + printable(name) +
                     ", which is not among what tensors need: it is not run");
    }
    return push_view(PickleKind::global, name, *number);
  }

  Result<std::string_view> take_line() {
    const std::string_view rest = as_text(bytes_.subspan(at_));
    const std::size_t end = rest.find('\n');
    if (end == std::string_view::npos) return truncated();
    at_ += end + 1;
    return rest.substr(0, end);
  }

  Status read_global() {
    const auto module = take_line();
    if (!module) return tl::unexpected(module.error());
    const auto name = take_line();
    if (!name) return tl::unexpected(name.error());
    return push_global(*module, *name);
  }

  Status read_stack_global() {
    const auto names = pop_many(2);
    if (!names) return tl::unexpected(names.error());
    const PickleNode& module = pickle_.nodes[(*names)[0]];
    const PickleNode& name = pickle_.nodes[(*names)[1]];
    if (module.kind != PickleKind::text || name.kind != PickleKind::text)
      return refused("a global whose name is no text");
    return push_global(pickle_.text(module), pickle_.text(name));
  }

  Status read_reduce() {
    const auto parts = pop_many(2);
    if (!parts) return tl::unexpected(parts.error());
    if (pickle_.nodes[(*parts)[0]].kind != PickleKind::global || pickle_.nodes[(*parts)[1]].kind != PickleKind::tuple) {
      return refused("REDUCE of something else than a known global with a tuple of arguments");
    }
    return push_holder(PickleKind::call, *parts);
  }

  /// The state of an object (state_dict's _metadata, attributes of a tensor) holds no values of tensors.
  Status read_build() {
    const auto state = pop();
    if (!state) return tl::unexpected(state.error());
    if (available() == 0) return refused("BUILD without an object");
    const PickleKind kind = pickle_.nodes[stack_.back()].kind;
    if (kind != PickleKind::call && kind != PickleKind::dict) return refused("BUILD of something else than an object");
    return {};
  }

  Status read_persistent() { return push_holder(PickleKind::persistent, pop_many(1)); }

  Status run(Opcode code) {
    switch (code) {
      case Opcode::mark:
        if (marks_.size() >= kMaxMarks) return refused("values nested too deeply");
        marks_.push_back(stack_.size());
        return {};
      case Opcode::stop:
        stopped_ = true;
        return {};
      case Opcode::global:
        return read_global();
      case Opcode::stack_global:
        return read_stack_global();
      case Opcode::reduce:
        return read_reduce();
      case Opcode::newobj:
        return options_.objects ? read_reduce() : run_leaf(code);
      case Opcode::build:
        return read_build();
      case Opcode::binpersid:
        return read_persistent();
      case Opcode::frame: {
        const auto length = take<std::uint64_t>();
        if (!length) return tl::unexpected(length.error());
        return *length > left() ? Status(truncated()) : Status();
      }
      case Opcode::memoize:
        return put(memo_.size());
      case Opcode::binput:
        return put_taken<std::uint8_t>();
      case Opcode::long_binput:
        return put_taken<std::uint32_t>();
      case Opcode::binget:
        return get_taken<std::uint8_t>();
      case Opcode::long_binget:
        return get_taken<std::uint32_t>();
      default:
        return run_collection(code);
    }
  }

  Status run_collection(Opcode code) {
    switch (code) {
      case Opcode::pop: {
        // Of a mark alone, POP takes the mark (pickle.py, load_pop).
        if (available() == 0 && !marks_.empty()) {
          marks_.pop_back();
          return {};
        }
        const auto top = pop();
        return top ? Status() : Status(tl::unexpected(top.error()));
      }
      case Opcode::pop_mark: {
        const auto items = pop_to_mark();
        return items ? Status() : Status(tl::unexpected(items.error()));
      }
      case Opcode::empty_list:
        return push({.kind = PickleKind::list});
      case Opcode::empty_dict:
        return push({.kind = PickleKind::dict});
      case Opcode::empty_tuple:
        return push({.kind = PickleKind::tuple});
      case Opcode::tuple1:
        return push_holder(PickleKind::tuple, pop_many(1));
      case Opcode::tuple2:
        return push_holder(PickleKind::tuple, pop_many(2));
      case Opcode::tuple3:
        return push_holder(PickleKind::tuple, pop_many(3));
      case Opcode::tuple:
        return push_holder(PickleKind::tuple, pop_to_mark());
      case Opcode::append:
        return extend(pop_many(1), false);
      case Opcode::appends:
        return extend(pop_to_mark(), false);
      case Opcode::setitem:
        return extend(pop_many(2), true);
      case Opcode::setitems:
        return extend(pop_to_mark(), true);
      default:
        return run_leaf(code);
    }
  }

  Status run_leaf(Opcode code) {
    switch (code) {
      case Opcode::none:
        return push({});
      case Opcode::newtrue:
        return push_flag(true);
      case Opcode::newfalse:
        return push_flag(false);
      case Opcode::binint:
        return push_number<std::int32_t>();
      case Opcode::binint1:
        return push_number<std::uint8_t>();
      case Opcode::binint2:
        return push_number<std::uint16_t>();
      case Opcode::long1:
        return push_long(take_counted<std::uint8_t>());
      case Opcode::long4:
        return push_long(take_counted<std::uint32_t>());
      case Opcode::binfloat:
        return push_real();
      case Opcode::short_binunicode:
        return push_text<std::uint8_t>(PickleKind::text);
      case Opcode::binunicode:
        return push_text<std::uint32_t>(PickleKind::text);
      case Opcode::binunicode8:
        return push_text<std::uint64_t>(PickleKind::text);
      case Opcode::short_binstring:
        return push_text<std::uint8_t>(PickleKind::text);
      case Opcode::binstring:
        return push_text<std::uint32_t>(PickleKind::text);
      case Opcode::short_binbytes:
        return push_text<std::uint8_t>(PickleKind::bytes);
      case Opcode::binbytes:
        return push_text<std::uint32_t>(PickleKind::bytes);
      case Opcode::binbytes8:
        return push_text<std::uint64_t>(PickleKind::bytes);
      default:
        return refused("the opcode " + opcode_name(static_cast<std::uint8_t>(code)) +
                       ", expected only those that tensors, numbers, texts and their collections need");
    }
  }

  static constexpr std::uint32_t kUnset = 0xffffffff;
  static constexpr std::size_t kMaxMarks = 1000;
  static constexpr std::size_t kMostItems = 0xffffffff;
  /// With its part of a deque's list of blocks.
  static constexpr std::uint64_t kNodeBytes = sizeof(PickleNode) + 2;

  std::span<const std::byte> bytes_;
  std::string_view file_;
  std::uint64_t base_;
  KnownGlobal known_;
  ReadBudget& budget_;
  PickleOptions options_;
  std::uint64_t at_ = 0;
  std::uint64_t opcode_at_ = 0;
  bool stopped_ = false;
  Pickle pickle_;
  std::vector<std::uint32_t> stack_;
  std::vector<std::size_t> marks_;
  std::vector<std::uint32_t> memo_;
};

}  // namespace

std::span<const std::uint32_t> Pickle::items(const PickleNode& node) const {
  switch (node.kind) {
    case PickleKind::tuple:
    case PickleKind::list:
    case PickleKind::dict:
    case PickleKind::call:
    case PickleKind::persistent:
      return std::span(all_items).subspan(node.first, node.count);
    default:
      return {};
  }
}

std::string_view Pickle::text(const PickleNode& node) const {
  switch (node.kind) {
    case PickleKind::text:
    case PickleKind::bytes:
    case PickleKind::wide_integer:
    case PickleKind::global:
      return bytes.substr(node.first, node.count);
    default:
      return {};
  }
}

Result<Pickle> read_pickle(std::span<const std::byte> bytes, std::string_view file, std::uint64_t base,
                           KnownGlobal known, ReadBudget& budget, PickleOptions options) {
  return PickleReader(bytes, file, base, known, budget, options).read();
}

}  // namespace nanscope
