// Moves one block between an engine's paged KV tensors and the contiguous record in the pool,
// hashing each chunk while it is in the cache.
#pragma once
#include <vector>

#include "format.hpp"

namespace kvext {

// Where an engine keeps its KV: block b's piece of layer l is piece_bytes[l] bytes at
// base[l] + b * piece_bytes[l]. The record is the pieces of a block in layer order.
struct Pages {
  std::vector<u8*> base;
  std::vector<u64> piece_bytes;
  u64 num_blocks = 0;
  u64 record_bytes = 0;
};

// Both return the record's checksum (record_hash.hpp).
u64 gather(const Pages& pages, u64 block, const Key& key, u32 shape, u8* record);
u64 scatter(const Pages& pages, u64 block, const Key& key, u32 shape, const u8* record);

// scatter without the hashing, for callers that verify in another way.
void scatter_unverified(const Pages& pages, u64 block, const u8* record);

// One layer's piece of a block; call stream_fence() before anybody is told of it.
void scatter_piece(const Pages& pages, std::size_t layer, u64 block, const u8* piece);

// The checksum of a record at rest.
u64 record_checksum(const Key& key, u32 shape, const u8* record, u64 length);

}  // namespace kvext
