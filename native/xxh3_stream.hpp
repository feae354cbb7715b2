// xxHash's streaming interface as ByteOps has it; included where <xxhash.h> was compiled in.
#pragma once
#include "bytes.hpp"

namespace kvext {
namespace {

static_assert(sizeof(XXH3_state_t) <= sizeof(HashState) && alignof(XXH3_state_t) <= alignof(HashState));

void xxh3_begin(HashState& state) {
  XXH3_INITSTATE(reinterpret_cast<XXH3_state_t*>(state.bytes));
  XXH3_64bits_reset(reinterpret_cast<XXH3_state_t*>(state.bytes));
}
void xxh3_more(HashState& state, const void* bytes, std::size_t n) {
  XXH3_64bits_update(reinterpret_cast<XXH3_state_t*>(state.bytes), bytes, n);
}
u64 xxh3_end(const HashState& state) { return XXH3_64bits_digest(reinterpret_cast<const XXH3_state_t*>(state.bytes)); }

}  // namespace
}  // namespace kvext
