// The two inner loops, XXH3 and a streaming copy, with the instruction set chosen at start.
#pragma once
#include <cstddef>

#include "format.hpp"

namespace kvext {

// Room for xxHash's own state, whatever the instruction set.
struct alignas(64) HashState {
  unsigned char bytes[576];
};

struct ByteOps {
  const char* name;
  u64 (*hash64)(const void* bytes, std::size_t n);
  // The same hash of bytes that come in parts.
  void (*hash_begin)(HashState& state);
  void (*hash_more)(HashState& state, const void* bytes, std::size_t n);
  u64 (*hash_end)(const HashState& state);
  // Copies past the cache: the destination is read much later, and fetching its old contents first (as
  // ordinary stores do) costs about a third of the bandwidth. Leaves `from` in the cache. Call
  // stream_fence() once after, before anybody may be told of the bytes.
  void (*stream_copy)(u8* to, const u8* from, std::size_t n);
};

// The fastest that this processor runs.
const ByteOps& byte_ops();
void stream_fence();

inline u64 hash64(const void* bytes, std::size_t n) { return byte_ops().hash64(bytes, n); }

}  // namespace kvext
