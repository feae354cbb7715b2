// SHA-256 of short messages, for the token chain: one call a request instead of one a link.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

namespace kvext {

using Digest = std::array<std::uint8_t, 32>;

// `message` holds n bytes, n at most 119 (two compression blocks after padding).
Digest sha256_short(const std::uint8_t* message, std::size_t n);

// Which compression function runs here: "sha-ni" or "portable".
const char* sha256_name();

}  // namespace kvext
