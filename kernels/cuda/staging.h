#pragma once
#include <array>
#include <cstddef>
#include <span>

#include "core/result.h"
#include "kernels/cuda/runtime.h"

namespace nanscope::kernels::cuda {

/// Copies between any host memory and the GPU over two pinned pieces: while the GPU copies one, the host fills or
/// empties the other. Of one thread and one stream.
class Staging {
 public:
  static constexpr std::size_t kPieceBytes = std::size_t{4} << 20;

  explicit Staging(cudaStream_t stream) : stream_(stream) {}

  /// Returns when `host` was read; the GPU has the bytes before anything that is put on the stream later.
  Status upload(void* device, std::span<const std::byte> host);
  /// Returns when `host` holds the bytes.
  Status download(std::span<std::byte> host, const void* device);

 private:
  struct Piece {
    Pinned memory;
    Event copied;          ///< recorded after the last copy from or to it
    std::size_t used = 0;  ///< bytes that copies of the stream may still read
    bool in_flight = false;
  };
  Status prepare(Piece& piece);
  /// Waits until nothing copies from or to the piece.
  Status settle(Piece& piece);
  Status mark(Piece& piece);
  /// The piece to fill next, with room for a byte at least.
  Result<Piece*> next_upload();

  cudaStream_t stream_;
  std::array<Piece, 2> uploads_;
  std::array<Piece, 2> downloads_;
  std::size_t filling_ = 0;
};

}  // namespace nanscope::kernels::cuda
