// The inner loops for one instruction set; each bytes_avx*.cpp includes this compiled for its own.
// Vector, load(from), stream(to, vector) come from the including file.
#pragma once
#include <cstring>

#include "bytes.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "xxh3_stream.hpp"

namespace kvext {
namespace {

u64 simd_hash64(const void* bytes, std::size_t n) { return XXH3_64bits(bytes, n); }

// Processors fetch ahead within a page only: the first lines of each page come late. Several pages at
// a time keep that many fetches under way: measured 1.3 times as fast as page after page.
template <std::size_t kStreams> std::size_t copy_streams(u8* to, const u8* from, std::size_t n) {
  constexpr std::size_t kVector = sizeof(Vector), kStep = 128, kVectors = kStep / kVector;
  const std::size_t apart = n / kStreams / kStep * kStep;
  for (std::size_t at = 0; at < apart; at += kStep)
    for (std::size_t s = 0; s < kStreams; ++s) {
      Vector v[kVectors];
      for (std::size_t i = 0; i < kVectors; ++i) v[i] = load(from + s * apart + at + i * kVector);
      for (std::size_t i = 0; i < kVectors; ++i) stream(to + s * apart + at + i * kVector, v[i]);
    }
  return kStreams * apart;
}

void simd_stream_copy(u8* to, const u8* from, std::size_t n) {
  const std::size_t head = -reinterpret_cast<std::uintptr_t>(to) % sizeof(Vector);
  if (n < 256) {
    std::memcpy(to, from, n);
    return;
  }
  std::memcpy(to, from, head);
  to += head, from += head, n -= head;
  const std::size_t done = n >= 4 * kPage ? copy_streams<4>(to, from, n) : n >= 2 * kPage ? copy_streams<2>(to, from, n) : copy_streams<1>(to, from, n);
  std::memcpy(to + done, from + done, n - done);
}

}  // namespace
}  // namespace kvext
