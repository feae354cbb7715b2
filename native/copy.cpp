#include "copy.hpp"

#include <algorithm>
#include <cstring>

#include "bytes.hpp"
#include "record_hash.hpp"

namespace kvext {
namespace {

// Walks a block's pieces as one stream of bytes.
class PieceCursor {
 public:
  PieceCursor(const Pages& pages, u64 block) : pages_(pages), block_(block) {}
  template <class Move> void advance(u64 n, Move move) {
    while (n > 0) {
      const u64 size = pages_.piece_bytes[layer_];
      const u64 step = std::min(n, size - at_);
      move(pages_.base[layer_] + block_ * size + at_, step);
      n -= step;
      at_ += step;
      if (at_ == size) ++layer_, at_ = 0;
    }
  }

 private:
  const Pages& pages_;
  u64 block_;
  std::size_t layer_ = 0;
  u64 at_ = 0;
};

template <class Step> void for_each_chunk(u64 length, Step step) {
  for (u64 at = 0; at < length; at += kChecksumChunk) step(at, std::min(kChecksumChunk, length - at));
}

}  // namespace

// Both hash what they have just copied, as copying is the faster reader of memory, and at the place that
// it was copied from: that is in the cache, where the destination is not.
u64 gather(const Pages& pages, u64 block, const Key& key, u32 shape, u8* record) {
  RecordStream hash(key, shape, pages.record_bytes);
  PieceCursor cursor(pages, block);
  for_each_chunk(pages.record_bytes, [&](u64, u64 n) {
    cursor.advance(n, [&](const u8* from, u64 step) {
      byte_ops().stream_copy(record, from, step);
      hash.add(from, step);
      record += step;
    });
  });
  stream_fence();
  return hash.value();
}

u64 scatter(const Pages& pages, u64 block, const Key& key, u32 shape, const u8* record) {
  RecordHash hash(key, shape, pages.record_bytes);
  PieceCursor cursor(pages, block);
  for_each_chunk(pages.record_bytes, [&](u64 at, u64 n) {
    const u8* from = record + at;
    cursor.advance(n, [&](u8* to, u64 step) { byte_ops().stream_copy(to, from, step), from += step; });
    hash.add(record + at, n);
  });
  stream_fence();
  return hash.value();
}

void scatter_unverified(const Pages& pages, u64 block, const u8* record) {
  PieceCursor cursor(pages, block);
  cursor.advance(pages.record_bytes, [&](u8* to, u64 step) { byte_ops().stream_copy(to, record, step), record += step; });
  stream_fence();
}

void scatter_piece(const Pages& pages, std::size_t layer, u64 block, const u8* piece) {
  const u64 size = pages.piece_bytes[layer];
  byte_ops().stream_copy(pages.base[layer] + block * size, piece, size);
}

u64 record_checksum(const Key& key, u32 shape, const u8* record, u64 length) {
  RecordHash hash(key, shape, length);
  for_each_chunk(length, [&](u64 at, u64 n) { hash.add(record + at, n); });
  return hash.value();
}

}  // namespace kvext
