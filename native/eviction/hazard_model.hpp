// Estimates of the hazard: how probable a hit is in each bin of age.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "features.hpp"
#include "survival.hpp"

namespace kvext::eviction {

// What is known of the time of a conversation's return: the bin in which the application expects
// it, or -1.
struct Run {
  Features features{};
  std::int8_t return_bin = -1;
};

// Logistic regression, learnt online. A feature's weight is the sum of one for a group of bins and
// one for all of them.
class LogitModel {
 public:
  LogitModel() {
    bias_.fill({std::log(first_hazard / (1 - first_hazard)), 1});
    // Of every workload that we saw: what was used again will be, a partial tail will not.
    constexpr std::array<double, 5> by_count = {0, 0.7, 1.12, 1.4, 1.75};
    for (std::size_t count = 1; count <= by_count.size(); ++count)
      shared(count_f, count).value = by_count[count - 1];
    shared(tail_f, 1).value = -2;
    for (std::uint8_t count = 0; count < 8; ++count) {
      shared(session_f, crossed(static_cast<std::uint8_t>(Session::open), count)).value = 1;
      shared(session_f, crossed(static_cast<std::uint8_t>(Session::closed), count)).value = -4;
    }
    for (std::size_t distance = 0; distance < return_prior.size(); ++distance)
      return_[distance].value = return_prior[distance];
  }

  // For all bins from `first` on.
  Hazards hazards(const Run& run, std::size_t first) const {
    Hazards out{};
    const Sums sums = sums_of(run);
    for (std::size_t bin = first; bin < num_bins; ++bin) out[bin] = hazard(run, sums, bin);
    return out;
  }

  // `hits` of `risk` blocks, which had all survived until bin `bin`, were hit in it.
  void learn(const Run& run, std::size_t bin, double hits, double risk) {
    const double gradient = (hazard(run, sums_of(run), bin) - hits / risk) * std::pow(risk, weight_power);
    step(bias_[bin], gradient);
    for (std::size_t f = 0; f < num_features; ++f) {
      step(weights_[f][run.features[f]][bin / bins_a_group], gradient);
      step(shared(f, run.features[f]), gradient);
    }
    if (run.return_bin >= 0) step(return_[distance(run, bin)], gradient);
  }

 private:
  static constexpr std::size_t bins_a_group = 5;
  static constexpr std::size_t num_groups = 4;
  static constexpr double first_hazard = 0.1;
  static constexpr double rate = 0.04;
  static constexpr double weight_power = 0.15;
  // How far the bin is from the one in which the application expects to be back: 3 and more
  // before it, ..., in it, ..., 3 and more after it.
  static constexpr std::array<double, 7> return_prior = {-3, -2, 0, 2, 1, 0, -1};

  struct Weight {
    double value = 0;
    double squares = 1;  // of all gradients: AdaGrad (Duchi, Hazan, Singer, 2011)
  };

  Weight& shared(std::size_t f, std::size_t bucket) { return weights_[f][bucket][num_groups]; }

  static std::size_t distance(const Run& run, std::size_t bin) {
    return std::clamp(static_cast<int>(bin) - run.return_bin, -3, 3) + 3;
  }

  // Of all features' weights, for each group of bins and for all bins.
  using Sums = std::array<double, num_groups + 1>;

  Sums sums_of(const Run& run) const {
    Sums sums{};
    for (std::size_t f = 0; f < num_features; ++f) {
      const auto& weights = weights_[f][run.features[f]];
      for (std::size_t group = 0; group <= num_groups; ++group) sums[group] += weights[group].value;
    }
    return sums;
  }

  double hazard(const Run& run, const Sums& sums, std::size_t bin) const {
    double z = bias_[bin].value + sums[bin / bins_a_group] + sums[num_groups];
    if (run.return_bin >= 0) z += return_[distance(run, bin)].value;
    return 1 / (1 + std::exp(-z));
  }

  static void step(Weight& weight, double gradient) {
    weight.squares += gradient * gradient;
    weight.value -= rate * gradient / std::sqrt(weight.squares);
  }

  std::array<Weight, num_bins> bias_;
  std::array<std::array<std::array<Weight, num_groups + 1>, num_buckets>, num_features> weights_{};
  std::array<Weight, 7> return_{};
};

// Counts of hits in five classes of blocks; what a class has not shown it takes from all together.
class TableModel {
 public:
  Hazards hazards(const Run& run, std::size_t first) const {
    Hazards out{};
    const std::size_t row = row_of(run);
    for (std::size_t bin = first; bin < num_bins; ++bin) {
      const double all = (all_[bin].hits + first_hazard) / (all_[bin].risk + 1);
      const Cell& cell = cells_[row][bin];
      out[bin] = (cell.hits + prior_blocks * all) / (cell.risk + prior_blocks);
    }
    return out;
  }

  void learn(const Run& run, std::size_t bin, double hits, double risk) {
    for (Cell* cell : {&cells_[row_of(run)][bin], &all_[bin]}) {
      cell->hits += hits;
      cell->risk += risk;
    }
  }

 private:
  static constexpr double first_hazard = 0.1;
  static constexpr double prior_blocks = 50;
  static constexpr std::size_t tail_row = 4;

  struct Cell {
    double hits = 0;
    double risk = 0;
  };

  // Count 1, 2, 3, 4 and more; partial tails.
  static std::size_t row_of(const Run& run) {
    if (run.features[tail_f]) return tail_row;
    return std::min<std::size_t>(run.features[count_f], 4) - 1;
  }

  std::array<std::array<Cell, num_bins>, 5> cells_{};
  std::array<Cell, num_bins> all_{};
};

}  // namespace kvext::eviction
