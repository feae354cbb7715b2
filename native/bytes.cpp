#include "bytes.hpp"

#include <cstring>

#include "bytes_hash.hpp"

namespace kvext {

#if defined(__x86_64__)
extern const ByteOps kAvx2Ops;
extern const ByteOps kAvx512Ops;
#endif

namespace {

void copy_baseline(u8* to, const u8* from, std::size_t n) { std::memcpy(to, from, n); }
constexpr ByteOps kBaselineOps{"baseline", xxh3, xxh3_begin, xxh3_add, xxh3_end, copy_baseline};

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
