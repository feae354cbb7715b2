#include <immintrin.h>

#include <cstdint>

namespace kvext {
namespace {
using Vector = __m256i;
inline Vector load(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); }
inline void stream(void* to, Vector v) { _mm256_stream_si256(static_cast<__m256i*>(to), v); }
}  // namespace
}  // namespace kvext

#include "bytes_simd.hpp"

namespace kvext {
extern const ByteOps kAvx2Ops;
const ByteOps kAvx2Ops{"avx2", simd_hash64, xxh3_begin, xxh3_more, xxh3_end, simd_stream_copy};
}  // namespace kvext
