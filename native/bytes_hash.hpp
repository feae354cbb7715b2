// XXH3 as ByteOps has it; each bytes*.cpp includes this compiled for its own instruction set.
#pragma once
#include <new>

#include "bytes.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace kvext {
namespace {

static_assert(sizeof(XXH3_state_t) <= sizeof(HashState) && alignof(XXH3_state_t) <= alignof(HashState));

u64 xxh3(const void* bytes, std::size_t n) { return XXH3_64bits(bytes, n); }
void xxh3_begin(HashState& state) { XXH3_64bits_reset(new (state.bytes) XXH3_state_t); }
void xxh3_add(HashState& state, const void* bytes, std::size_t n) { XXH3_64bits_update(std::launder(reinterpret_cast<XXH3_state_t*>(state.bytes)), bytes, n); }
u64 xxh3_end(const HashState& state) { return XXH3_64bits_digest(std::launder(reinterpret_cast<const XXH3_state_t*>(state.bytes))); }

}  // namespace
}  // namespace kvext
