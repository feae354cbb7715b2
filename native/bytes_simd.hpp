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

void simd_stream_copy(u8* to, const u8* from, std::size_t n) {
  constexpr std::size_t kVector = sizeof(Vector), kStep = 4 * kVector;
  const std::size_t head = -reinterpret_cast<std::uintptr_t>(to) % kVector;
  if (n < kStep + head) {
    std::memcpy(to, from, n);
    return;
  }
  std::memcpy(to, from, head);
  std::size_t at = head;
  for (; at + kStep <= n; at += kStep) {
    const Vector a = load(from + at), b = load(from + at + kVector), c = load(from + at + 2 * kVector), d = load(from + at + 3 * kVector);
    stream(to + at, a), stream(to + at + kVector, b), stream(to + at + 2 * kVector, c), stream(to + at + 3 * kVector, d);
  }
  std::memcpy(to + at, from + at, n - at);
}

}  // namespace
}  // namespace kvext
