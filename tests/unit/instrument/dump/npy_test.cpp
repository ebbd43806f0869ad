#include "instrument/dump/containers/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "instrument/files/file.h"

namespace nanscope {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

/// A version 1.0 file of this header, unpadded, and so many bytes of elements.
std::string npy(const std::string& header, std::size_t elements) {
  std::string file("\x93NUMPY\x01\x00", 8);
  file += static_cast<char>(header.size() & 255U);
  file += static_cast<char>(header.size() >> 8);
  return file + header + std::string(elements, '\0');
}

std::string with_shape(const std::string& shape) {
  return "{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + ", }";
}

std::string npy_refusal(const std::string& file) {
  const auto array = parse_npy(std::as_bytes(std::span(file)), file.size(), "x.npy", 0);
  if (array) return array->unreadable;
  EXPECT_THAT(array.error().message, StartsWith("x.npy: offset "));
  EXPECT_EQ(array.error().message.find('\n'), std::string::npos);
  return array.error().message;
}

TEST(Npy, HeaderIsParsedStrictly) {
  EXPECT_EQ(npy_refusal(npy(with_shape("(2, 3)"), 24)), "");
  EXPECT_EQ(npy_refusal(npy(R"({"shape":(1,),"fortran_order":True,"descr":"<f4"})", 4)), "");
  EXPECT_THAT(npy_refusal(npy("  ", 0)), HasSubstr("has the end of the header here, expected the '{'"));
  EXPECT_THAT(npy_refusal(npy("[]", 0)), HasSubstr("expected the '{' of a dictionary"));
  EXPECT_THAT(npy_refusal(npy(with_shape("[2]"), 8)),
              HasSubstr("offset 60: the header has '[2], }' here, expected the '('"));
  EXPECT_THAT(npy_refusal(npy(with_shape("(2)"), 8)), HasSubstr("expected ',' or ')'"));
  EXPECT_THAT(npy_refusal(npy(with_shape("(2,"), 8)), HasSubstr("expected an extent"));
  EXPECT_THAT(npy_refusal(npy(with_shape("(-2,)"), 8)), HasSubstr("expected an extent"));
  EXPECT_THAT(npy_refusal(npy(with_shape("(__import__('os'),)"), 8)), HasSubstr("expected an extent"));
  EXPECT_THAT(npy_refusal(npy(with_shape("(9223372036854775808,)"), 8)), HasSubstr("expected an extent"));
  EXPECT_THAT(npy_refusal(npy(with_shape("(2,)") + " x", 8)), HasSubstr("expected the end of the header"));
  EXPECT_THAT(npy_refusal(npy("{'descr': '<f4', 'shape': (), }", 4)), HasSubstr("no 'fortran_order'"));
  EXPECT_THAT(npy_refusal(npy("{'descr': '<f4', 'descr': '<f4'}", 4)), HasSubstr("names 'descr' twice"));
  EXPECT_THAT(npy_refusal(npy("{'more': 1}", 4)), HasSubstr("names 'more'"));
  EXPECT_THAT(npy_refusal(npy("{'descr': '<f\\x34'}", 4)), HasSubstr("without escapes"));
  EXPECT_THAT(npy_refusal(npy("{'descr': [('a', '<f4')", 4)), HasSubstr("end of a list of fields"));
  EXPECT_THAT(npy_refusal(npy("{'descr': '<f4', 'fortran_order': 1}", 4)), HasSubstr("expected True or False"));
}

TEST(Npy, SizesAreCheckedBeforeAnythingIsRead) {
  EXPECT_THAT(npy_refusal(npy(with_shape("(2, 3)"), 23)),
              HasSubstr("23 bytes of elements, expected 24 for the shape [2, 3] in f32 (truncated?)"));
  EXPECT_THAT(npy_refusal(npy(with_shape("(2, 3)"), 25)), HasSubstr("25 bytes of elements, expected 24"));
  EXPECT_THAT(npy_refusal(npy(with_shape("(4294967296, 4294967296)"), 8)), HasSubstr("has too many elements"));
  EXPECT_THAT(npy_refusal(npy(with_shape("(4611686018427387904,)"), 8)), HasSubstr("has too many elements"));
  // Beside a 0 too, as NumPy refuses them: who counts rows multiplies the others.
  EXPECT_THAT(npy_refusal(npy(with_shape("(9223372036854775807, 9223372036854775807, 0)"), 0)),
              HasSubstr("has too many elements"));
  EXPECT_EQ(npy_refusal(npy(with_shape("(0, 1099511627776)"), 0)), "");
  std::string zeros = "(";
  for (int i = 0; i < 65; ++i) zeros += "1, ";
  EXPECT_THAT(npy_refusal(npy(with_shape(zeros + ")"), 4)), HasSubstr("at most 64 extents"));
}

TEST(Npy, LengthAndVersionAreChecked) {
  EXPECT_THAT(npy_refusal("PK"), HasSubstr("offset 0: not a npy file"));
  std::string file = npy(with_shape("(1,)"), 4);
  file[6] = 4;
  EXPECT_THAT(npy_refusal(file), HasSubstr("offset 6: npy version 4.0"));
  file[6] = 2;
  EXPECT_THAT(npy_refusal(file), HasSubstr("offset 8: a header of"));
  file[6] = 1;
  file[9] = 1;
  EXPECT_THAT(npy_refusal(file), HasSubstr("ends inside the npy header"));
}

/// An empty array in Fortran order of extents whose product does not fit.
TEST(Npy, EmptyArraysNeedNoStrides) {
  const std::string file = npy("{'descr': '<f4', 'fortran_order': True, 'shape': (0, 1099511627776, 3), }", 0);
  const auto container = open_npy(FileBytes{"x.npy", std::as_bytes(std::span(file)), nullptr});
  ASSERT_TRUE(container.has_value()) << container.error().message;
  EXPECT_EQ((*container)->bytes(0)->bytes.size(), 0U);
}

/// Elements of half a byte cannot be picked one by one.
TEST(Npy, PackedElementsAreRowMajor) {
  const std::string file = npy("{'descr': 'fp4', 'fortran_order': True, 'shape': (6, 4), }", 12);
  const auto container = open_npy(FileBytes{"x.npy", std::as_bytes(std::span(file)), nullptr});
  ASSERT_TRUE(container.has_value()) << container.error().message;
  const auto bytes = (*container)->bytes(0);
  ASSERT_FALSE(bytes);
  EXPECT_THAT(bytes.error().message, HasSubstr("x.npy: elements of less than a byte"));
}

TEST(Npy, TypesThatTheFileDoesNotNameAreSaid) {
  const std::string v1 = npy("{'descr': '<V1', 'fortran_order': False, 'shape': (2,), }", 2);
  const auto array = parse_npy(std::as_bytes(std::span(v1)), v1.size(), "x.npy", 0);
  EXPECT_EQ(array->dtype->name, "u8");
  EXPECT_EQ(array->note, "stored as <V1: codes of an 8-bit type that the file does not name");
  const std::string v2 = npy("{'descr': '|V2', 'fortran_order': False, 'shape': (2,), }", 4);
  EXPECT_EQ(parse_npy(std::as_bytes(std::span(v2)), v2.size(), "x.npy", 0)->dtype->name, "bf16");
}

/// A pair is no two neighbours where the first index runs fastest.
TEST(Npy, ComplexNumbersArePairs) {
  const std::string rows = npy("{'descr': '<c8', 'fortran_order': False, 'shape': (2, 3), }", 48);
  const auto array = parse_npy(std::as_bytes(std::span(rows)), rows.size(), "x.npy", 0);
  EXPECT_EQ(array->dtype->name, "f32");
  EXPECT_EQ(array->shape, (std::vector<std::int64_t>{2, 3, 2}));
  EXPECT_EQ(array->note, "complex numbers, read as pairs of their real and imaginary parts");
  const std::string columns = npy("{'descr': '<c8', 'fortran_order': True, 'shape': (2, 3), }", 48);
  const auto refused = parse_npy(std::as_bytes(std::span(columns)), columns.size(), "x.npy", 0);
  EXPECT_EQ(refused->unreadable, "elements are complex, '<c8', expected real numbers");
  const std::string wide = npy("{'descr': '<c32', 'fortran_order': False, 'shape': (1,), }", 32);
  EXPECT_EQ(parse_npy(std::as_bytes(std::span(wide)), wide.size(), "x.npy", 0)->unreadable,
            "elements are complex, '<c32', expected real numbers");
}

/// Files that numpy.save wrote of what is no plain little-endian number.
TEST(Npy, OtherElementsAreRefusedByName) {
  const std::filesystem::path dumps = std::filesystem::path(NANSCOPE_SOURCE_DIR) / "tests/golden/dumps";
  const auto why = [&](const char* name) {
    const auto container = open_npy(map_file(dumps / name).value());
    EXPECT_FALSE(container.has_value());
    return container ? "" : container.error().message.substr((dumps / name).string().size());
  };
  EXPECT_EQ(why("refused_big_endian.npy"),
            ": offset 20: elements are big-endian, '>f4', expected little-endian: save "
            "array.astype(array.dtype.newbyteorder('<'))");
  EXPECT_EQ(why("refused_text.npy"), ": offset 20: elements are '<U2', expected numbers of a known type");
  EXPECT_EQ(why("refused_object.npy"),
            ": offset 20: elements are Python objects, '|O', which are pickled code: expected numbers");
  EXPECT_EQ(why("refused_record.npy"), ": offset 20: elements are records of several fields, expected plain numbers");
}

}  // namespace
}  // namespace nanscope
