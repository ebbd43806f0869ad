#include "instrument/dump/containers/pt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "instrument/dump/containers/pickle.h"
#include "tests/zip_builder.h"

namespace nanscope {
namespace {

using namespace std::string_literals;
using testing::HasSubstr;
using testing::StartsWith;

const std::filesystem::path kPtDumps = std::filesystem::path(NANSCOPE_SOURCE_DIR) / "tests/golden/dumps";

/// What torch.save would write around this pickle, with one storage of eight bytes.
std::string archive_of(const std::string& pickle) {
  const std::vector<ZipEntry> entries = {{.name = "a/data.pkl", .data = pickle},
                                         {.name = "a/data/0", .data = std::string(8, '\0')}};
  return ZipBuilder(entries).bytes;
}

Result<std::unique_ptr<Container>> open(const std::string& bytes) {
  return open_pt({"x.pt", std::as_bytes(std::span(bytes)), nullptr});
}

/// Offsets in messages are in the archive: the pickle begins at 40.
std::string pt_refusal(const std::string& pickle) {
  const std::string bytes = archive_of(pickle);
  const auto container = open(bytes);
  if (container) return "";
  EXPECT_THAT(container.error().message, StartsWith("x.pt: a/data.pkl: offset "));
  EXPECT_EQ(container.error().message.find('\n'), std::string::npos);
  return container.error().message.substr(std::string("x.pt: a/data.pkl: ").size());
}

std::string text(const std::string& value) { return "\x8c"s + static_cast<char>(value.size()) + value; }
std::string global(const std::string& module, const std::string& name) { return "c" + module + "\n" + name + "\n"; }
std::string number(int value) { return "K"s + static_cast<char>(value); }

struct TensorParts {
  std::string storage_type = global("torch", "FloatStorage");
  std::string key = text("0");
  std::string elements = number(2);
  std::string offset = number(0);
  std::string shape = number(2) + "\x85";
  std::string strides = number(1) + "\x85";
};

std::string tensor(const TensorParts& parts) {
  return global("torch._utils", "_rebuild_tensor_v2") + "((" + text("storage") + parts.storage_type + parts.key +
         text("cpu") + parts.elements + "tQ" + parts.offset + parts.shape + parts.strides + "\x89" +
         global("collections", "OrderedDict") + ")RtR";
}

std::string pt_refusal_of(const TensorParts& parts) { return pt_refusal("\x80\x02" + tensor(parts) + "."); }

TEST(PtPickles, AreReadAsData) {
  EXPECT_EQ(pt_refusal("\x80\x02" + tensor({}) + "."), "");
  EXPECT_EQ(pt_refusal("\x80\x02}" + text("a") + tensor({}) + "s."), "");
}

TEST(PtPickles, CodeIsRefusedByNameAndNotRun) {
  EXPECT_EQ(pt_refusal("\x80\x02" + global("os", "system") + text("true") + "\x85R."),
            "offset 42: the pickle wants os.system, which is not among what tensors need: it is not run");
  EXPECT_THAT(pt_refusal("\x80\x04" + text("builtins") + text("eval") + "\x93."), HasSubstr("wants builtins.eval"));
  EXPECT_THAT(pt_refusal("\x80\x02" + global("torch", "load") + "."), HasSubstr("wants torch.load"));
  EXPECT_THAT(pt_refusal("\x80\x02" + global("torch.storage", "_load_from_bytes") + "."),
              HasSubstr("_load_from_bytes"));
  EXPECT_THAT(pt_refusal("\x80\x02" + global("torch", "FloatStorage.x") + "."),
              HasSubstr("wants torch.FloatStorage.x"));
  EXPECT_THAT(pt_refusal("\x80\x02(i" + std::string("os\nsystem\n.")), HasSubstr("offset 43: the opcode INST"));
  EXPECT_THAT(pt_refusal("\x80\x02" + global("collections", "OrderedDict") + ")\x81."), HasSubstr("the opcode NEWOBJ"));
  EXPECT_THAT(pt_refusal("\x80\x02\x82\x01."), HasSubstr("the opcode EXT1"));
  EXPECT_THAT(pt_refusal("\x80\x02\xf0."), HasSubstr("the opcode 0xf0"));
  // Known names, called on something that makes no tensor.
  EXPECT_THAT(pt_refusal("\x80\x02" + global("torch", "FloatStorage") + ")R."), HasSubstr("expected a tensor"));
  EXPECT_THAT(pt_refusal("\x80\x02" + text("x") + ")R."), HasSubstr("REDUCE of something else"));
  EXPECT_THAT(pt_refusal("\x80\x02]}b."), HasSubstr("BUILD of something else"));
}

TEST(PtPickles, MachineKeepsItsStack) {
  EXPECT_THAT(pt_refusal("\x80\x02."), HasSubstr("more or less than one value"));
  EXPECT_THAT(pt_refusal("\x80\x02NN."), HasSubstr("more or less than one value"));
  EXPECT_THAT(pt_refusal("\x80\x02(N."), HasSubstr("more or less than one value"));
  EXPECT_THAT(pt_refusal("\x80\x02N.N"), HasSubstr("more bytes behind"));
  EXPECT_THAT(pt_refusal("\x80\x02N"), HasSubstr("truncated?"));
  EXPECT_THAT(pt_refusal("\x80\x02\x85."), HasSubstr("needs more values"));
  EXPECT_THAT(pt_refusal("\x80\x02N(\x85."), HasSubstr("needs more values"));  // not across a mark
  EXPECT_THAT(pt_refusal("\x80\x02t."), HasSubstr("needs a mark"));
  EXPECT_THAT(pt_refusal("\x80\x02h\x05."), HasSubstr("memo 5 is read before it is written"));
  EXPECT_THAT(pt_refusal("\x80\x02Nr\xff\xff\xff\x7f."), HasSubstr("skips numbers"));
  EXPECT_THAT(pt_refusal("\x80\x02Ns."), HasSubstr("needs more values"));
  EXPECT_THAT(pt_refusal("\x80\x02}(Nu."), HasSubstr("a key without a value"));
  EXPECT_THAT(pt_refusal("\x80\x02NNa."), HasSubstr("a value that holds none"));
  EXPECT_THAT(pt_refusal("\x80\x02X\xff\xff\xff\xff."), HasSubstr("truncated?"));
  EXPECT_THAT(pt_refusal("\x80\x01N."), HasSubstr("no pickle of protocol 2 to 5"));
  EXPECT_THAT(pt_refusal("\x80\x02" + std::string(2000, '(')), HasSubstr("nested too deeply"));
}

TEST(PtPickles, LoopsAndBushesEnd) {
  EXPECT_THAT(pt_refusal("\x80\x02]q"s + '\0' + "h"s + '\0' + "a."),
              HasSubstr("nested deeper than 64, or in themselves"));
  // Each list holds the one before it ten times: 10^30 values in a few bytes.
  std::string bush = "\x80\x02N";
  for (int level = 0; level < 30; ++level) {
    const std::string memo(1, static_cast<char>(level));
    bush += "q" + memo + "0](";
    for (int i = 0; i < 10; ++i) bush += "h" + memo;
    bush += "e";
  }
  EXPECT_THAT(pt_refusal(bush + "."),
              HasSubstr("the tensors and values up to here would take more than four times the file"));
}

TEST(PtTensors, StayInsideTheirStorage) {
  EXPECT_THAT(
      pt_refusal_of({.shape = number(3) + "\x85"}),
      HasSubstr("a tensor of shape [3] and strides [1] from element 0 reaches beyond the 2 elements of its storage"));
  EXPECT_THAT(pt_refusal_of({.offset = number(1)}), HasSubstr("from element 1 reaches beyond"));
  EXPECT_THAT(pt_refusal_of({.strides = number(2) + "\x85"}), HasSubstr("reaches beyond"));
  EXPECT_THAT(pt_refusal_of({.shape = "J\xff\xff\xff\x7f"s + "\x85", .strides = "J\xff\xff\xff\x7f"s + "\x85"}),
              HasSubstr("reaches beyond"));
  const std::string huge = "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f";
  EXPECT_THAT(pt_refusal_of({.shape = huge + "\x85", .strides = huge + "\x85"}), HasSubstr("reaches beyond"));
  EXPECT_THAT(pt_refusal_of({.offset = huge}), HasSubstr("reaches beyond"));
  EXPECT_THAT(pt_refusal_of({.shape = huge + huge + "\x86", .strides = number(0) + number(0) + "\x86"}),
              HasSubstr("reaches beyond"));
  EXPECT_THAT(pt_refusal_of({.strides = "J\xff\xff\xff\xff\x85"}), HasSubstr("no numbers from 0"));
  EXPECT_THAT(pt_refusal_of({.shape = ")"}), HasSubstr("as many strides as extents"));
  EXPECT_THAT(pt_refusal_of({.shape = "\x8c\x01x\x85"}), HasSubstr("no numbers from 0"));
}

TEST(PtTensors, StoragesAreChecked) {
  EXPECT_THAT(pt_refusal_of({.elements = number(3)}),
              HasSubstr("the storage 'a/data/0' of 8 bytes, expected 3 float32 elements"));
  EXPECT_THAT(pt_refusal_of({.storage_type = global("torch", "DoubleStorage")}),
              HasSubstr("expected 2 float64 elements"));
  EXPECT_THAT(pt_refusal_of({.key = text("1")}), HasSubstr("storage 'a/data/1' is not in the archive"));
  EXPECT_THAT(pt_refusal_of({.key = text("../data.pkl")}), HasSubstr("is not in the archive"));
  EXPECT_THAT(pt_refusal_of({.storage_type = global("torch", "float32")}), HasSubstr("dtype is not said"));
  EXPECT_THAT(pt_refusal_of({.elements = "N"}), HasSubstr("storage is not described"));
}

TEST(PtTensors, ExpandedOnesAreSkippedAndSaid) {
  const std::string bytes =
      archive_of("\x80\x02" + tensor({.shape = "M\xe8\x03\x85", .strides = number(0) + "\x85"}) + ".");
  const auto container = open(bytes);
  ASSERT_TRUE(container.has_value()) << container.error().message;
  EXPECT_EQ((*container)->tensors().size(), 0U);
  ASSERT_EQ((*container)->skipped().size(), 1U);
  EXPECT_EQ((*container)->skipped()[0].reason,
            "a view that repeats its storage of 8 bytes to 4000: an expanded tensor");
}

TEST(PtTensors, KeysOccurOnce) {
  EXPECT_THAT(pt_refusal("\x80\x02}(" + text("a") + "N" + text("a") + "Nu."), HasSubstr("the key 'a' twice"));
  EXPECT_THAT(pt_refusal("\x80\x02}(" + text("a.b") + tensor({}) + text("a") + "}" + text("b") + tensor({}) + "su."),
              HasSubstr("two tensors with the key 'a.b'"));
  EXPECT_THAT(pt_refusal("\x80\x02}N" + tensor({}) + "s."), HasSubstr("key that is neither text nor number"));
  EXPECT_THAT(pt_refusal("\x80\x02}" + text("\xff") + tensor({}) + "s."), HasSubstr("key that is no UTF-8"));
}

TEST(PtFiles, OthersAreRefusedWithAWayOut) {
  const auto why = [](const char* name) {
    const auto container = open_pt(map_file(kPtDumps / name).value());
    EXPECT_FALSE(container.has_value());
    return container ? "" : container.error().message.substr((kPtDumps / name).string().size());
  };
  EXPECT_EQ(why("refused_legacy.pt"),
            ": offset 0: a bare pickle, as torch.save wrote before PyTorch 1.6, expected its zip format: load it and "
            "torch.save it again");
  EXPECT_THAT(why("refused_object.pt"), HasSubstr("the pickle wants datetime.date, which is not among"));
  EXPECT_THAT(why("refused_module.pt"), HasSubstr("the pickle wants torch.nn.modules.linear.Linear"));
  const std::string npz = ZipBuilder(std::vector<ZipEntry>{{.name = "a.npy", .data = ""}}).bytes;
  EXPECT_EQ(open(npz).error().message, "x.pt: offset 0: a zip without data.pkl, expected what torch.save writes");
  const std::string big = ZipBuilder(std::vector<ZipEntry>{{.name = "a/data.pkl", .data = "\x80\x02N."},
                                                           {.name = "a/byteorder", .data = "big"}})
                              .bytes;
  EXPECT_THAT(open(big).error().message, HasSubstr("the byte order 'big', expected 'little'"));
}

/// Views of one storage are the same bytes of the map; nothing is copied but what is not row-major.
TEST(PtFiles, SharedStoragesAreReadInPlace) {
  const auto file = map_file(kPtDumps / "nested2.pt").value();
  const auto container = open_pt(file).value();
  const auto tensors = container->tensors();
  const auto place = [&](const std::string& key) {
    const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const auto& t) { return t.key == key; });
    return container->bytes(static_cast<std::size_t>(found - tensors.begin()))->bytes.data() - file.bytes.data();
  };
  EXPECT_EQ(place("model.layers.0.tail"), place("model.layers.0.base") + 12 * 4);
  EXPECT_EQ(place("model.layers.1.0"), place("model.layers.0.base"));
  EXPECT_EQ(static_cast<std::uint64_t>(place("model.layers.0.base")), tensors[0].offset);
}

}  // namespace
}  // namespace nanscope
