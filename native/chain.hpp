// The token chain of one sequence: a link for every 16 tokens, and from it the key of a block.
#pragma once
#include <span>

#include "format.hpp"
#include "sha256.hpp"

namespace kvext {

inline constexpr u64 kChainTokens = 16;

class Chain {
 public:
  // Goes on behind `parent`, the link before the next token.
  explicit Chain(std::span<const u8, 32> parent);

  // The link over the next tokens.
  const Digest& advance(const u32 (&tokens)[kChainTokens]);
  const Digest& link() const { return link_; }

  // The key of the block that ends here.
  Digest key(std::span<const u8, 32> name_space) const { return block_key(name_space, link_.data()); }
  static Digest block_key(std::span<const u8, 32> name_space, const u8* link);

 private:
  Digest link_;
};

}  // namespace kvext
