#include "kernels/cuda/staging.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace nanscope::kernels::cuda {
namespace {

constexpr std::string_view kUpload = "copying to the GPU";
constexpr std::string_view kDownload = "copying from the GPU";

}  // namespace

Status Staging::prepare(Piece& piece) {
  if (piece.memory) return {};
  Result<Pinned> memory = make_pinned(kPieceBytes);
  if (!memory) return tl::unexpected(memory.error());
  Result<Event> copied = make_event();
  if (!copied) return tl::unexpected(copied.error());
  piece.memory = std::move(*memory);
  piece.copied = std::move(*copied);
  return {};
}

Status Staging::settle(Piece& piece) {
  if (!piece.in_flight) return {};
  if (Status waited = checked(cudaEventSynchronize(piece.copied.get()), "waiting for a copy", kFaultHint); !waited) {
    return waited;
  }
  piece.in_flight = false;
  piece.used = 0;
  return {};
}

Status Staging::mark(Piece& piece) {
  piece.in_flight = true;
  return checked(cudaEventRecord(piece.copied.get(), stream_), "marking a copy", kFaultHint);
}

Result<Staging::Piece*> Staging::next_upload() {
  Piece* piece = &uploads_[filling_];
  if (piece->used == kPieceBytes) {
    filling_ = 1 - filling_;
    piece = &uploads_[filling_];
    if (Status settled = settle(*piece); !settled) return tl::unexpected(settled.error());
  }
  if (Status prepared = prepare(*piece); !prepared) return tl::unexpected(prepared.error());
  return piece;
}

Status Staging::upload(void* device, std::span<const std::byte> host) {
  auto* to = static_cast<std::byte*>(device);
  while (!host.empty()) {
    const Result<Piece*> next = next_upload();
    if (!next) return tl::unexpected(next.error());
    Piece& piece = **next;
    const std::size_t count = std::min(host.size(), kPieceBytes - piece.used);
    std::byte* from = piece.memory.get() + piece.used;
    std::memcpy(from, host.data(), count);
    if (Status begun = checked(cudaMemcpyAsync(to, from, count, cudaMemcpyHostToDevice, stream_), kUpload, kFaultHint);
        !begun) {
      return begun;
    }
    piece.used += count;
    if (Status marked = mark(piece); !marked) return marked;
    to += count;
    host = host.subspan(count);
  }
  return {};
}

Status Staging::download(std::span<std::byte> host, const void* device) {
  const auto* from = static_cast<const std::byte*>(device);
  const std::size_t pieces = (host.size() + kPieceBytes - 1) / kPieceBytes;
  const auto part = [&](std::size_t index) {
    return host.subspan(index * kPieceBytes, std::min(kPieceBytes, host.size() - index * kPieceBytes));
  };
  const auto begin = [&](std::size_t index) -> Status {
    Piece& piece = downloads_[index % 2];
    if (Status prepared = prepare(piece); !prepared) return prepared;
    const Status begun = checked(cudaMemcpyAsync(piece.memory.get(), from + index * kPieceBytes, part(index).size(),
                                                 cudaMemcpyDeviceToHost, stream_),
                                 kDownload, kFaultHint);
    return begun ? mark(piece) : begun;
  };
  for (std::size_t index = 0; index <= pieces; ++index) {
    if (index < pieces) {
      if (Status begun = begin(index); !begun) return begun;
    }
    if (index == 0) continue;
    Piece& piece = downloads_[(index - 1) % 2];
    if (Status settled = settle(piece); !settled) return settled;
    std::memcpy(part(index - 1).data(), piece.memory.get(), part(index - 1).size());
  }
  return {};
}

}  // namespace nanscope::kernels::cuda
