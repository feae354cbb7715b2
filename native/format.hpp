// On-media format of a pool region. This is its only definition; docs/on-media-format.md explains it
// and tests/golden/ holds a region that must stay readable. Offsets only, never pointers; little-endian.
#pragma once
#include <cstddef>
#include <cstdint>

namespace kvext {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

inline constexpr u64 kMagic = 0x314c4f4f5058564bULL;  // "KVXPOOL1"
inline constexpr u32 kFormatVersion = 2;
inline constexpr u32 kMaxProcesses = 128;
inline constexpr u32 kMaxNamespaces = 1024;
inline constexpr u64 kMaxExtents = 1ULL << 30;  // slot indexes are 32 bits, and there are up to four slots an extent
inline constexpr u32 kUnknownNamespace = 0xffff;
inline constexpr u32 kNoSlot = 0xffffffff;  // of an extent in limbo
inline constexpr u32 kProbeLimit = 128;   // slots a lookup may visit; longer is a miss
inline constexpr u64 kChecksumChunk = 32 * 1024;
inline constexpr u64 kPage = 4096;
inline constexpr u64 kKeyBytes = 32;

// Byte-range locks live far behind the last byte of any region: one for allocation, one a process.
inline constexpr u64 kAllocationLockAt = 1ULL << 60;
inline constexpr u64 kProcessLockAt = kAllocationLockAt + 1;

enum class SlotState : u8 {
  free = 0,
  reserved = 1,     // being written by the extent's owner
  committed = 2,    // readable, immutable
  evicting = 3,     // the evictor looks for pins; readers miss
  tombstone = 4,    // empty, but probe chains go on behind it
  quarantined = 5,  // its bytes did not match their checksum; kept out of use until cleared
};

// A slot's state word: generation in the upper 56 bits, state in the lower 8.
constexpr u64 state_word(SlotState state, u64 generation) { return generation << 8 | static_cast<u8>(state); }
constexpr SlotState state_of(u64 word) { return static_cast<SlotState>(word & 0xff); }
constexpr u64 generation_of(u64 word) { return word >> 8; }

struct Key {
  u64 word[4];
  friend bool operator==(const Key&, const Key&) = default;
};

struct alignas(64) Slot {
  Key key;
  u64 state;
  u32 extent;
  u32 length;       // bytes of the record
  u32 shape;        // RecordShape: block tokens, rank, world
  u32 last_access;  // tenths of a second since the epoch of Superblock::created_s
  u32 previous_access;
  u16 name_space;   // index in the namespace table, which says whether the record may be read
  u8 hits;          // saturating
  u8 reference;     // CLOCK's second chances, 0..3
};

struct alignas(32) Extent {
  u64 checksum;
  u64 owner_epoch;  // of the process that reserved it; 0: free
  u32 slot;         // kNoSlot: in limbo, a fenced process may still be writing it
  u32 next_free;    // extent index + 1; 0 ends the list
  u16 owner;        // index in the process table
  u16 name_space;   // index in the namespace table
  u32 reserved;
};

struct alignas(64) Process {
  u64 epoch;   // unique in the life of the region; 0: nobody, or a fenced process that has not come back
  u64 beat;    // changes as long as the process runs; what it says means nothing
  u64 beat_ms; // CLOCK_BOOTTIME of the last beat, for people
  u64 pid_namespace;
  u32 pid;
  u32 fenced;  // not 0: was fenced alive, so void pins lie in its row until it comes back or dies
  char label[64];
};

enum class NamespaceState : u64 {
  unused = 0,
  live = 1,
  fenced = 2,       // its records are unreachable; another entry of the same digest may be live
  quarantined = 3,  // nothing is read or written until somebody releases it
};

struct alignas(32) NamespaceEntry {
  u8 digest[32];
  u8 model[32];     // digest of the weights, for fences; zero: not known
  u64 num_extents;  // 0: the entry may be taken by another namespace
  NamespaceState state;
  char label[80];
};

struct Geometry {
  u64 extent_bytes;  // 0: memory is reserved, the first engine decides
  u64 num_extents;
  u64 num_slots;     // a power of two, at least twice num_extents
  u64 pins_at;       // u16 [kMaxProcesses][pin_row_bytes / 2]
  u64 pin_row_bytes;
  u64 slots_at;
  u64 extents_at;
  u64 payload_at;
};

enum Counter : u32 {
  lookups, hits,
  // In the order of StoreOutcome.
  stores, exists, rejected_no_space, rejected_lock_timeout, rejected_index_full, rejected_fenced, rejected_too_large,
  rejected_bypassed, rejected_namespaces_full,
  // In the order of LoadOutcome.
  loads, stale_loads, corrupt_loads,
  evictions, reclaims, cleared, reaped_reservations, fenced_processes, fenced_records, recoveries, bypassed_lookups,
  kNumCounters,
};

struct Superblock {
  u64 magic;
  u32 format_version;
  u32 formatted;  // release-stored last: the tables behind the header are valid
  u8 uuid[16];
  u64 region_bytes;
  u64 created_s;  // CLOCK_REALTIME
  u64 geometry_checksum;
  Geometry geometry;
  char boot_id[40];
  u64 lease_ms;  // how long a process may be silent before others fence it
  alignas(64) u64 epoch;
  u64 lock_holder;  // process index + 1 while the tables may be inconsistent
  u64 free_head;    // extent index + 1
  u64 num_free;
  u64 clock_hand;
  u64 bypass;       // not 0: engines match and store nothing
  u64 num_limbo;
  u64 agent_epoch;  // of the process that holds the agent's role; 0: nobody
  alignas(64) u64 counters[kNumCounters];
};

inline constexpr u64 kProcessesAt = kPage;
inline constexpr u64 kNamespacesAt = kProcessesAt + kMaxProcesses * sizeof(Process);
inline constexpr u64 kTablesAt = kNamespacesAt + kMaxNamespaces * sizeof(NamespaceEntry);

static_assert(sizeof(Slot) == 64 && sizeof(Extent) == 32 && sizeof(Process) == 128);
static_assert(sizeof(NamespaceEntry) == 160 && sizeof(Superblock) <= kPage && kTablesAt % kPage == 0);
static_assert(offsetof(Superblock, epoch) == 192 && offsetof(Superblock, bypass) == 232 && offsetof(Superblock, counters) == 256);

// Outcome of one block; values are those of kvext.protocol.transfer.
enum class StoreOutcome : u8 { stored, exists, no_space, lock_timeout, index_full, fenced, too_large, bypassed, namespaces_full };
inline constexpr u32 kNumStoreOutcomes = 9;
enum class LoadOutcome : u8 { loaded, stale, corrupt };

constexpr Counter counter_of(StoreOutcome outcome) { return static_cast<Counter>(stores + static_cast<u32>(outcome)); }

// What a match hands out and a load takes back: 16 bytes on any wire inside a host.
struct BlockRef {
  u32 slot;
  u32 extent;
  u64 generation;
};
static_assert(sizeof(BlockRef) == 16);

}  // namespace kvext
