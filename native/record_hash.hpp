// The checksum of a record: XXH3 over (key, shape, length, the XXH3 of each 32 KiB chunk in order), so
// that a record found through a damaged slot or extent does not verify either.
#pragma once
#include <algorithm>

#include "bytes.hpp"

namespace kvext {

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

// The same of a record whose bytes come in order but in pieces that end inside chunks.
class RecordStream {
 public:
  RecordStream(const Key& key, u32 shape, u64 length) : hash_(key, shape, length), left_(length) {}
  void add(const u8* bytes, u64 n) {
    while (n > 0) {
      const u64 chunk = std::min(kChecksumChunk, in_chunk_ + left_);
      const u64 step = std::min(n, chunk - in_chunk_);
      if (step == chunk) {
        hash_.add(bytes, step);
      } else {
        if (in_chunk_ == 0) byte_ops().hash_begin(open_);
        byte_ops().hash_more(open_, bytes, step);
        in_chunk_ += step;
        if (in_chunk_ == chunk) hash_.fold(byte_ops().hash_end(open_)), in_chunk_ = 0;
      }
      bytes += step, n -= step, left_ -= step;
    }
  }
  u64 value() const { return hash_.value(); }

 private:
  HashState open_;  // of the chunk that has begun
  RecordHash hash_;
  u64 left_;
  u64 in_chunk_ = 0;
};

}  // namespace kvext
