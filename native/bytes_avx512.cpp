// GCC 12 takes the undefined vectors inside its own intrinsics for mistakes (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

#include <cstdint>

namespace kvext {
namespace {
using Vector = __m512i;
inline Vector load(const void* from) { return _mm512_loadu_si512(from); }
inline void stream(void* to, Vector v) { _mm512_stream_si512(static_cast<__m512i*>(to), v); }
}  // namespace
}  // namespace kvext

#include "bytes_simd.hpp"

namespace kvext {
extern const ByteOps kAvx512Ops;
const ByteOps kAvx512Ops{"avx512", simd_hash64, xxh3_begin, xxh3_more, xxh3_end, simd_stream_copy};
}  // namespace kvext
