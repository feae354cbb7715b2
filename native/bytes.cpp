#include "bytes.hpp"

#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "xxh3_stream.hpp"

namespace kvext {

#if defined(__x86_64__)
extern const ByteOps kAvx2Ops;
extern const ByteOps kAvx512Ops;
#endif

namespace {

u64 hash64_baseline(const void* bytes, std::size_t n) { return XXH3_64bits(bytes, n); }
void copy_baseline(u8* to, const u8* from, std::size_t n) { std::memcpy(to, from, n); }
constexpr ByteOps kBaselineOps{"baseline", hash64_baseline, xxh3_begin, xxh3_more, xxh3_end, copy_baseline};

const ByteOps& pick() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) return kAvx512Ops;
  if (__builtin_cpu_supports("avx2")) return kAvx2Ops;
#endif
  return kBaselineOps;
}

}  // namespace

const ByteOps& byte_ops() {
  static const ByteOps& chosen = pick();
  return chosen;
}

void stream_fence() {
#if defined(__x86_64__)
  __builtin_ia32_sfence();
#endif
}

}  // namespace kvext
