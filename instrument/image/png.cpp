#include <png.h>

#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>

#include "instrument/image/image.h"

// libpng reports errors by longjmp. The functions that call setjmp hold no object with a destructor
// and keep everything that outlives a jump in a struct of their caller.

namespace nanscope {
namespace {

constexpr int kMaxSide = 16384;
constexpr std::size_t kMaxPixels = std::size_t{16} << 20;
constexpr png_alloc_size_t kMaxChunk = 16 << 20;

/// State of one decoding or encoding, shared with libpng's callbacks.
struct Stream {
  std::span<const std::byte> in;
  std::size_t position = 0;
  std::vector<std::byte> out;
  bool out_of_memory = false;
  std::array<char, 160> message{};
  std::jmp_buf jump;
};

[[noreturn]] void on_error(png_structp png, png_const_charp message) {
  auto* stream = static_cast<Stream*>(png_get_error_ptr(png));
  std::snprintf(stream->message.data(), stream->message.size(), "%s", message);
  std::longjmp(stream->jump, 1);
}

/// Warnings (odd ancillary chunks) do not change the samples.
void on_warning(png_structp /*png*/, png_const_charp /*message*/) {}

void on_read(png_structp png, png_bytep data, png_size_t size) {
  auto* stream = static_cast<Stream*>(png_get_io_ptr(png));
  if (size > stream->in.size() - stream->position) {
    stream->position = stream->in.size();
    png_error(png, "the file ends early");
  }
  std::memcpy(data, stream->in.data() + stream->position, size);
  stream->position += size;
}

void on_write(png_structp png, png_bytep data, png_size_t size) {
  auto* stream = static_cast<Stream*>(png_get_io_ptr(png));
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  try {
    stream->out.insert(stream->out.end(), bytes, bytes + size);
  } catch (const std::bad_alloc&) {
    stream->out_of_memory = true;
  }
  if (stream->out_of_memory) png_error(png, "out of memory");
}

void on_flush(png_structp /*png*/) {}

/// Owns libpng's two structs of a reader.
struct Reader {
  explicit Reader(Stream& stream) : png(png_create_read_struct(PNG_LIBPNG_VER_STRING, &stream, on_error, on_warning)) {
    if (png != nullptr) info = png_create_info_struct(png);
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  ~Reader() { png_destroy_read_struct(&png, &info, nullptr); }
  png_structp png = nullptr;
  png_infop info = nullptr;
};

struct Writer {
  explicit Writer(Stream& stream) : png(png_create_write_struct(PNG_LIBPNG_VER_STRING, &stream, on_error, on_warning)) {
    if (png != nullptr) info = png_create_info_struct(png);
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  ~Writer() { png_destroy_write_struct(&png, &info); }
  png_structp png = nullptr;
  png_infop info = nullptr;
};

/// Reads the header and asks for 8-bit RGB rows. False: stream.message says why not.
bool read_header(Stream& stream, png_structp png, png_infop info) {
  if (setjmp(stream.jump) != 0) return false;
  png_set_read_fn(png, &stream, on_read);
  png_set_user_limits(png, kMaxSide, kMaxSide);
  png_set_chunk_malloc_max(png, kMaxChunk);
  png_set_chunk_cache_max(png, 128);
  png_read_info(png, info);
  png_set_expand(png);
  png_set_scale_16(png);
  png_set_gray_to_rgb(png);
  png_set_strip_alpha(png);
  png_read_update_info(png, info);
  return true;
}

/// Reads all rows and the end of the file. False: stream.message says why not.
bool read_rows(Stream& stream, png_structp png, std::span<png_bytep> rows) {
  if (setjmp(stream.jump) != 0) return false;
  png_read_image(png, rows.data());
  png_read_end(png, nullptr);
  return true;
}

bool write_image(Stream& stream, png_structp png, png_infop info, const Image& image, std::span<png_bytep> rows) {
  if (setjmp(stream.jump) != 0) return false;
  png_set_write_fn(png, &stream, on_write, on_flush);
  png_set_IHDR(png, info, static_cast<png_uint_32>(image.width), static_cast<png_uint_32>(image.height), 8,
               PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_write_info(png, info);
  png_write_image(png, rows.data());
  png_write_end(png, nullptr);
  return true;
}

std::vector<png_bytep> row_pointers(std::uint8_t* samples, std::size_t width, std::size_t height) {
  std::vector<png_bytep> rows(height);
  for (std::size_t y = 0; y < height; ++y) rows[y] = samples + y * width * 3;
  return rows;
}

}  // namespace

Result<Image> decode_png(std::span<const std::byte> bytes, std::string_view file) {
  Stream stream;
  stream.in = bytes;
  const auto failure = [&] {
    return fail(std::string(file) + ": cannot read the PNG at offset " + std::to_string(stream.position) + ": " +
                stream.message.data());
  };
  if (bytes.size() < 8 || png_sig_cmp(reinterpret_cast<png_const_bytep>(bytes.data()), 0, 8) != 0) {
    return fail(std::string(file) + ": not a PNG: wrong signature at offset 0");
  }
  Reader reader(stream);
  if (reader.info == nullptr) return fail(std::string(file) + ": out of memory for the PNG reader");
  if (!read_header(stream, reader.png, reader.info)) return failure();
  const std::size_t width = png_get_image_width(reader.png, reader.info);
  const std::size_t height = png_get_image_height(reader.png, reader.info);
  if (width * height > kMaxPixels) {
    return fail(std::string(file) + ": " + std::to_string(width) + "x" + std::to_string(height) +
                " pixels, expected at most " + std::to_string(kMaxPixels));
  }
  if (png_get_rowbytes(reader.png, reader.info) != width * 3) {
    return fail(std::string(file) + ": the PNG does not expand to 8-bit RGB");
  }
  Image image{static_cast<int>(width), static_cast<int>(height), std::vector<std::uint8_t>(width * height * 3)};
  auto rows = row_pointers(image.rgb.data(), width, height);
  if (!read_rows(stream, reader.png, rows)) return failure();
  return image;
}

Result<std::vector<std::byte>> encode_png(const Image& image) {
  if (image.width < 1 || image.height < 1 || image.width > kMaxSide || image.height > kMaxSide ||
      image.rgb.size() != static_cast<std::size_t>(image.width) * static_cast<std::size_t>(image.height) * 3) {
    return fail("cannot write a PNG of " + std::to_string(image.width) + "x" + std::to_string(image.height) +
                " pixels from " + std::to_string(image.rgb.size()) + " samples");
  }
  Stream stream;
  Writer writer(stream);
  if (writer.info == nullptr) return fail("out of memory for the PNG writer");
  // libpng takes rows as non-const but only reads them.
  auto rows = row_pointers(const_cast<std::uint8_t*>(image.rgb.data()), static_cast<std::size_t>(image.width),
                           static_cast<std::size_t>(image.height));
  if (!write_image(stream, writer.png, writer.info, image, rows)) {
    return fail(std::string("cannot write the PNG: ") + stream.message.data());
  }
  return std::move(stream.out);
}

}  // namespace nanscope
