// Records of accesses, and when the model learns from them.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "access.hpp"
#include "hazard_model.hpp"

namespace kvext::eviction {

using RunIndex = std::uint32_t;
inline constexpr RunIndex no_run = UINT32_MAX;

// What blocks of one run have in common.
struct Past {
  RunIndex run = no_run;
  std::uint32_t count = 0;
  std::uint8_t children = 0;
  bool tail = false;
  bool operator==(const Past&) const = default;
};

struct Record {
  Run run;
  std::int64_t at_ms = 0;
  std::int64_t gap_ms = -1;
  std::uint32_t prompt_blocks = 0;
  std::uint32_t turn = 1;
  std::uint32_t num_blocks = 0;
  std::array<std::uint32_t, num_bins> hits{};
  std::uint32_t references = 0;
};

// What all blocks of one prompt have in common.
struct Prompt {
  std::uint32_t num_blocks = 0;
  std::uint32_t num_new = 0;
  std::uint32_t turn = 1;
  std::int64_t output_tokens = -1;
  std::int64_t gap_ms = -1;
  std::int64_t previous_gap_ms = -1;
  Session session = Session::unknown;
  std::int8_t return_bin = -1;

  static Prompt of(const Access& access, std::size_t num_blocks, std::size_t num_known,
                   const Record* conversation, std::int64_t now_ms) {
    Prompt prompt;
    prompt.num_blocks = static_cast<std::uint32_t>(num_blocks);
    prompt.num_new = static_cast<std::uint32_t>(num_blocks - num_known);
    prompt.output_tokens = access.output_tokens;
    prompt.session = access.session;
    if (access.return_ms >= 0 && access.session != Session::closed)
      prompt.return_bin = static_cast<std::int8_t>(bin_of(access.return_ms));
    if (conversation != nullptr) {
      prompt.turn = conversation->turn + 1;
      prompt.gap_ms = now_ms - conversation->at_ms;
      prompt.previous_gap_ms = conversation->gap_ms;
    }
    return prompt;
  }

  Features features(const Past& past, std::size_t position, std::int64_t own_gap_ms) const {
    const std::uint8_t length = log_bucket(num_blocks);
    const std::uint8_t output = log_bucket(output_tokens);
    Features f{};
    f[count_f] = static_cast<std::uint8_t>(std::min<std::uint32_t>(past.count, 5));
    f[turn_f] = static_cast<std::uint8_t>(std::min<std::uint32_t>(turn, 20));
    f[prompt_f] = length;
    f[output_f] = output;
    f[gap_f] = gap_bucket(gap_ms);
    f[children_f] = past.children;
    f[tail_f] = past.tail;
    f[new_blocks_f] = log_bucket(num_new);
    f[own_gap_f] = gap_bucket(own_gap_ms);
    f[previous_gap_f] = gap_bucket(previous_gap_ms);
    f[position_f] = log_bucket(static_cast<std::int64_t>(position));
    const auto count = static_cast<std::uint8_t>(std::min<std::uint32_t>(past.count, 7));
    f[count_turn_f] = crossed(count, static_cast<std::uint8_t>(std::min<std::uint32_t>(turn, 7)));
    f[prompt_output_f] = crossed(length, output / 2);
    f[new_prompt_f] = crossed(f[new_blocks_f], length);
    if (session != Session::unknown)
      f[session_f] = crossed(static_cast<std::uint8_t>(session), count);
    return f;
  }
};

template <class Model>
class Runs {
 public:
  const Record& operator[](RunIndex run) const { return records_[run]; }

  RunIndex start(const Prompt& prompt, const Past& past, std::size_t position,
                 std::int64_t own_gap_ms, std::int64_t now_ms) {
    const RunIndex run = allocate();
    Record& record = records_[run];
    record.run = {prompt.features(past, position, own_gap_ms), prompt.return_bin};
    record.at_ms = now_ms;
    record.gap_ms = prompt.gap_ms;
    record.prompt_blocks = prompt.num_blocks;
    record.turn = prompt.turn;
    if (++num_started_ % learns_one_of_ == 0) {
      record.references = 1;
      unlearnt_.push_back(run);
      if (unlearnt_.size() > most_unlearnt) learn_less();
    }
    return run;
  }

  void join(RunIndex run) {
    ++records_[run].references;
    ++records_[run].num_blocks;
  }

  void leave(RunIndex run) {
    if (--records_[run].references == 0) free_.push_back(run);
  }

  // One of its blocks was asked for.
  void hit(RunIndex run, std::int64_t now_ms) {
    Record& record = records_[run];
    ++record.hits[bin_of(now_ms - record.at_ms)];
  }

  // Learns from every record that has left a bin since the last call.
  void learn(std::int64_t now_ms) {
    for (std::size_t bin = 0; bin < num_bins; ++bin) {
      for (; cursor_[bin] < first_ + unlearnt_.size(); ++cursor_[bin]) {
        const Record& record = records_[unlearnt_[cursor_[bin] - first_]];
        if (record.at_ms > now_ms - bin_edges_ms[bin + 1]) break;
        std::uint32_t risk = record.num_blocks;
        for (std::size_t before = 0; before < bin; ++before) risk -= record.hits[before];
        if (risk > 0) model_.learn(record.run, bin, record.hits[bin], risk);
      }
    }
    while (first_ < cursor_[num_bins - 1]) drop_first();
  }

  // The Gittins index of a run at its age. The most frequent question of all: see `choose`.
  double index(RunIndex run, std::int64_t now_ms) {
    Index& index = indices_[run];
    if (now_ms >= index.valid_until_ms) index = computed(records_[run], now_ms);
    return index.value;
  }

 private:
  static constexpr std::int64_t index_lasts_ms = 5000;
  static constexpr std::size_t most_unlearnt = 1 << 17;

  struct Index {
    std::int64_t valid_until_ms = 0;
    double value = 0;
  };

  // Valid within the bin, and while the model has not learnt much more.
  Index computed(const Record& record, std::int64_t now_ms) const {
    const std::size_t bin = bin_of(now_ms - record.at_ms);
    const std::int64_t bin_ends_ms =
        bin + 1 < num_bins ? record.at_ms + bin_edges_ms[bin + 1] : INT64_MAX;
    return {std::min(now_ms + index_lasts_ms, bin_ends_ms),
            gittins(model_.hazards(record.run, bin), bin)};
  }

  RunIndex allocate() {
    if (free_.empty()) {
      records_.emplace_back();
      indices_.emplace_back();
      return static_cast<RunIndex>(records_.size() - 1);
    }
    const RunIndex run = free_.back();
    free_.pop_back();
    records_[run] = Record{};
    indices_[run] = Index{};
    return run;
  }

  // Many runs a second: to learn from all ages within bounded memory, learn from fewer runs.
  void learn_less() {
    learns_one_of_ *= 2;
    while (unlearnt_.size() > most_unlearnt / 2) drop_first();
  }

  void drop_first() {
    leave(unlearnt_.front());
    unlearnt_.pop_front();
    ++first_;
    for (auto& cursor : cursor_) cursor = std::max(cursor, first_);
  }

  Model model_;
  std::vector<Record> records_;
  std::vector<Index> indices_;  // of the records, apart: they alone are read at every choice
  std::vector<RunIndex> free_;
  std::deque<RunIndex> unlearnt_;  // oldest first
  std::uint64_t first_ = 0;        // number of the first of them
  std::array<std::uint64_t, num_bins> cursor_{};  // for each bin the number of the next to learn
  std::uint64_t num_started_ = 0;
  std::uint64_t learns_one_of_ = 1;
};

}  // namespace kvext::eviction
