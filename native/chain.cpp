#include "chain.hpp"

#include <bit>
#include <cstring>

namespace kvext {

// Tokens are hashed as they lie in memory.
static_assert(std::endian::native == std::endian::little);

Chain::Chain(std::span<const u8, 32> parent) { std::memcpy(link_.data(), parent.data(), 32); }

const Digest& Chain::advance(const u32 (&tokens)[kChainTokens]) {
  u8 message[32 + sizeof tokens];
  std::memcpy(message, link_.data(), 32);
  std::memcpy(message + 32, tokens, sizeof tokens);
  link_ = sha256_short(message, sizeof message);
  return link_;
}

Digest Chain::block_key(std::span<const u8, 32> name_space, const u8* link) {
  u8 message[64];
  std::memcpy(message, name_space.data(), 32);
  std::memcpy(message + 32, link, 32);
  return sha256_short(message, sizeof message);
}

}  // namespace kvext
