#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/corpus/model.h"
#include "tests/corpus/tape.h"

/// A small server: one forward pass after the other over a KV cache, with the choices that deployments differ in.
/// Faults come from those choices and from the weights, never from a line that wants one.
namespace nanscope::corpus {

/// Where the scales of the KV cache come from.
enum class KvScales : std::uint8_t {
  none,     ///< the cache holds the model's dtype
  fixed,    ///< Settings::k_scale and v_scale
  locked,   ///< computed in the first pass, then kept
  dynamic,  ///< computed from every pass
};

/// What a kernel of a product does wrong.
enum class Bug : std::uint8_t {
  zero_columns,  ///< the last tile of columns is never written
  old_rows,      ///< rows from the middle on hold what the first one does
  short_sum,     ///< the last quarter of the sums is left out
  no_bias,       ///< the bias is not added
  factor,        ///< a factor that belongs to another place
};

/// Of one product of one layer.
struct Broken {
  std::string part;
  int layer = 0;
  Bug bug = Bug::zero_columns;
  float factor = 1;
};

struct Settings {
  float eps = 1e-5F;
  bool one_pass = false;  ///< LayerNorm's variance as E[x^2] - E[x]^2, summed in f32 in sequence

  KvScales kv_scales = KvScales::none;
  Cast kv_cast = {};      ///< when they are not `none`
  float k_divisor = 448;  ///< scale = absmax / divisor
  float v_divisor = 448;
  float k_scale = 1;  ///< when fixed
  float v_scale = 1;
  std::optional<Format> kv_labelled = {};  ///< what the dump calls the cache, when not what it was written in
  std::optional<Format> kv_read_as = {};   ///< what attention takes it for
  int k_power = 1;                         ///< how often reading applies the scale
  int v_power = 1;
  bool cached = true;  ///< false: attention over its own keys and values, as in vision transformers
  int slots = 0;       ///< that attention reads, whatever was written; 0: those written

  bool causal = true;
  int sees_ahead = 0;               ///< tokens that a wrong mask leaves visible
  std::int64_t padding = 0;         ///< leading tokens that no query may attend to
  bool additive_mask = false;       ///< the mask is added to the scores rather than chosen
  bool reads_masked = false;        ///< P x V goes over masked keys too, with probability 0
  bool zeroes_empty_rows = false;   ///< a softmax over nothing is zeros rather than 0/0
  bool naive_softmax = false;       ///< without subtracting the largest score
  std::optional<Cast> scores = {};  ///< scores are cast before the softmax; `given` is set from their history
  float history_margin = 0.9F;

  std::optional<Broken> broken = {};

  std::optional<float> activation_clamp = {};  ///< by fmin and fmax, which drop a NaN
  bool subtracts_bias = false;                 ///< the router takes its weights from biased scores and removes the bias
  Format router_format = Format::bf16;         ///< of those scores
};

/// What goes into a pass.
struct Prompt {
  std::vector<std::int64_t> ids;
  Matrix embedded;
};

/// A cast that cut values off, by the numbers before it.
struct Clip {
  std::string codes;  ///< the dumped name of the codes
  std::string scale;
  std::int64_t clipped = 0;
  std::int64_t of = 0;
};

class Server {
 public:
  Server(Model model, Settings settings);

  Model model;
  Settings settings;
  std::vector<Clip> clips;  ///< of caches, in order of execution

  /// `tokens` ids drawn by seed and name, and their embeddings.
  Prompt prompt(std::uint64_t seed, std::string_view name, std::int64_t tokens) const;
  /// One forward pass that appends to the cache; gives the token that an argmax chooses from the last row.
  std::int64_t run(Tape& tape, const std::string& folder, const Prompt& prompt);
  /// The cache is free again. Its bytes stay, as memory does.
  void forget() { length_ = 0; }
  /// The next pass writes behind `tokens` tokens that are in the cache already.
  void reuse(std::int64_t tokens) { length_ = tokens; }
  /// What the cache holds in slots that nobody has written: bytes of what used them before.
  void fill_cache(std::span<const std::byte> bytes);
  /// Scales that calibration found.
  float k_scale(int layer) const { return keys_[static_cast<std::size_t>(layer)].scale; }
  /// Writes the weights down, as a checkpoint or beside the activations.
  void dump_weights(Tape& tape, const std::string& folder) const;
  /// The name in the dump of `what` of a part: name("k", 1, "output").
  std::string name(std::string_view part, int layer, std::string_view what) const;
  /// Histories of absmax of the scores, one a layer; newest last.
  std::vector<std::vector<float>> score_history;

 private:
  struct Side {
    std::vector<std::uint32_t> codes;
    std::vector<float> row_scales;  ///< one a token, where tokens have their own
    float scale = 0;
    bool calibrated = false;
  };
  struct Attention {
    std::int64_t start = 0;  ///< position of the first query
    std::int64_t keys = 0;   ///< that are read
    Matrix k, v;
  };

  Matrix normed(const Norm& norm, const Matrix& x) const;
  Matrix through(Tape& tape, std::string_view part, int layer, Linear& linear, const Matrix& x);
  bool broken(std::string_view part, int layer, Bug bug) const {
    return settings.broken && settings.broken->part == part && settings.broken->layer == layer &&
           settings.broken->bug == bug;
  }
  Matrix cast_input(Tape& tape, std::string_view part, int layer, const Linear& linear, const Matrix& x) const;
  Matrix attention(Tape& tape, int layer, const Matrix& x);
  void project(Tape& tape, int layer, const Matrix& x, Matrix& q, Matrix& k, Matrix& v);
  void store(Tape& tape, int layer, bool key, const Matrix& rows);
  Matrix load(Tape& tape, int layer, bool key, std::int64_t keys) const;
  Matrix scores(Tape& tape, int layer, const Matrix& q, const Attention& a);
  void cast_scores(Tape& tape, int layer, Matrix& scores);
  Matrix softmax(const Matrix& scores) const;
  Matrix weigh(const Matrix& probs, const Attention& a, std::int64_t tokens) const;
  Matrix mlp(Tape& tape, int layer, const Matrix& x);
  Matrix mixture(Tape& tape, int layer, const Matrix& x);
  std::vector<std::pair<int, float>> route(const Layer& layer, std::span<const float> logits) const;
  bool visible(std::int64_t query, std::int64_t key) const;
  void put(Tape& tape, Group group, std::string_view part, int layer, std::string_view what, const Matrix& m) const;
  void dump_norm(Tape& tape, std::string_view part, int layer, const Norm& norm) const;
  void dump_linear(Tape& tape, std::string_view part, int layer, const Linear& linear) const;

  std::vector<Side> keys_;
  std::vector<Side> values_;
  std::int64_t length_ = 0;
  std::string folder_;
};

}  // namespace nanscope::corpus
