#include "copy.hpp"

#include <algorithm>
#include <cstring>

#include "bytes.hpp"

namespace kvext {
namespace {

// Chunk hashes are folded as they come, so a record of any length needs no buffer.
class RecordHash {
 public:
  RecordHash(const Key& key, u32 shape, u64 length) {
    const u64 head[6] = {key.word[0], key.word[1], key.word[2], key.word[3], shape, length};
    value_ = hash64(head, sizeof head);
  }
  void add(const u8* chunk, u64 n) { fold(hash64(chunk, n)); }
  void fold(u64 chunk_hash) {
    const u64 pair[2] = {value_, chunk_hash};
    value_ = hash64(pair, sizeof pair);
  }
  u64 value() const { return value_; }

 private:
  u64 value_;
};

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

// Both hash a chunk after its copy, which is the faster reader of memory, and at the place that it was
// copied from: that is in the cache, where the destination is not.
u64 gather(const Pages& pages, u64 block, const Key& key, u32 shape, u8* record) {
  const ByteOps& ops = byte_ops();
  RecordHash hash(key, shape, pages.record_bytes);
  PieceCursor cursor(pages, block);
  for_each_chunk(pages.record_bytes, [&](u64 at, u64 n) {
    u8* to = record + at;
    HashState chunk;
    u64 chunk_hash = 0;
    cursor.advance(n, [&](const u8* from, u64 step) {
      ops.stream_copy(to, from, step);
      if (step == n) return chunk_hash = ops.hash64(from, n), void();
      if (to == record + at) ops.hash_begin(chunk);
      ops.hash_add(chunk, from, step);
      to += step;
    });
    hash.fold(to == record + at ? chunk_hash : ops.hash_end(chunk));
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

u64 record_checksum(const Key& key, u32 shape, const u8* record, u64 length) {
  RecordHash hash(key, shape, length);
  for_each_chunk(length, [&](u64 at, u64 n) { hash.add(record + at, n); });
  return hash.value();
}

}  // namespace kvext
