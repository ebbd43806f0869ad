#include "instrument/spectral/interaction.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>

#include "core/threads/parallel.h"

namespace nanscope {
namespace {

using Matrix = Eigen::MatrixXd;
using Rows = Eigen::Map<const Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>;

constexpr std::int64_t kColumns = 512;  ///< that are made double at a time: a head's part stays in level 2

Rows head_rows(const std::vector<float>& matrix, std::int64_t head, std::int64_t head_dim, std::int64_t width) {
  return {matrix.data() + head * head_dim * width, head_dim, width};
}

/// A A', of which only the lower half was computed.
Matrix gram(const Rows& a) {
  Matrix sum = Matrix::Zero(a.rows(), a.rows());
  for (std::int64_t first = 0; first < a.cols(); first += kColumns) {
    const Matrix part = a.middleCols(first, std::min(kColumns, a.cols() - first)).cast<double>();
    sum.selfadjointView<Eigen::Lower>().rankUpdate(part);
  }
  return sum.selfadjointView<Eigen::Lower>();
}

/// A B'.
Matrix product(const Rows& a, const Rows& b) {
  Matrix sum = Matrix::Zero(a.rows(), b.rows());
  for (std::int64_t first = 0; first < a.cols(); first += kColumns) {
    const std::int64_t count = std::min(kColumns, a.cols() - first);
    const Matrix part = b.middleCols(first, count).cast<double>();
    sum.noalias() += a.middleCols(first, count).cast<double>() * part.transpose();
  }
  return sum;
}

/// One product for every use: each new pair of expressions would be a kernel more to compile.
Matrix times(const Matrix& a, const Matrix& b) { return a * b; }

/// S with S S' = G, for G that is positive semidefinite but for rounding.
Matrix square_root(const Matrix& gram) {
  const Eigen::SelfAdjointEigenSolver<Matrix> solver(gram);
  return solver.eigenvectors() * solver.eigenvalues().cwiseMax(0).cwiseSqrt().asDiagonal();
}

double root_of_largest_eigenvalue(const Matrix& symmetric) {
  const Eigen::SelfAdjointEigenSolver<Matrix> solver(symmetric, Eigen::EigenvaluesOnly);
  return std::sqrt(std::max(0.0, solver.eigenvalues().maxCoeff()));
}

/// The rows of `root` turned as a rotary embedding turns the channels of a head that many positions further.
Matrix rotated(const Matrix& root, std::span<const float> frequencies, double offset) {
  Matrix turned = root;
  const auto pairs = static_cast<std::int64_t>(frequencies.size());
  for (std::int64_t i = 0; i < pairs; ++i) {
    const double angle = offset * double{frequencies[static_cast<std::size_t>(i)]};
    const double cosine = std::cos(angle);
    const double sine = std::sin(angle);
    turned.row(i) = cosine * root.row(i) - sine * root.row(i + pairs);
    turned.row(i + pairs) = sine * root.row(i) + cosine * root.row(i + pairs);
  }
  return turned;
}

/// norm(query' key), a lower bound by power iteration: what is rotated is only compared with what is not.
double product_norm(const Matrix& query, const Matrix& key) {
  constexpr int kIterations = 30;
  Eigen::VectorXd v = Eigen::VectorXd::LinSpaced(key.cols(), 1, 2).normalized();
  double norm = 0;
  for (int i = 0; i < kIterations; ++i) {
    const Eigen::VectorXd u = query.transpose() * (key * v);
    const double length = u.norm();
    if (!(length > 0)) return norm;
    v = key.transpose() * (query * (u / length));
    norm = v.norm();
    if (!(norm > 0)) return norm;
    v /= norm;
  }
  return norm;
}

Eigen::VectorXd part_of(const std::vector<float>& bias, std::int64_t head, std::int64_t head_dim) {
  if (bias.empty()) return Eigen::VectorXd::Zero(head_dim);
  return Eigen::Map<const Eigen::VectorXf>(bias.data() + head * head_dim, head_dim).cast<double>();
}

/// What the query heads of a group share.
struct KeyHead {
  Matrix root;
  double norm = 0;
};

}  // namespace

Result<std::vector<HeadNorms>> head_norms(const QueryKeyWeights& weights, const RotationProbe& rotations, int threads,
                                          std::stop_token stop) {
  const std::int64_t dim = weights.head_dim;
  std::vector<KeyHead> keys(static_cast<std::size_t>(weights.kv_heads));
  Status done = in_parallel(weights.kv_heads, threads, [&](std::int64_t head) {
    if (stop.stop_requested()) return;
    KeyHead& key = keys[static_cast<std::size_t>(head)];
    key.root = square_root(gram(head_rows(weights.k, head, dim, weights.width)));
    key.norm = root_of_largest_eigenvalue(times(key.root.transpose(), key.root));
  });
  if (!done) return tl::unexpected(done.error());
  std::vector<HeadNorms> norms(static_cast<std::size_t>(weights.heads));
  done = in_parallel(weights.heads, threads, [&](std::int64_t head) {
    if (stop.stop_requested()) return;
    HeadNorms& one = norms[static_cast<std::size_t>(head)];
    const std::int64_t kv_head = head / weights.group();
    const KeyHead& key = keys[static_cast<std::size_t>(kv_head)];
    const Rows query_rows = head_rows(weights.q, head, dim, weights.width);
    const Rows key_rows = head_rows(weights.k, kv_head, dim, weights.width);
    const Matrix query_gram = gram(query_rows);
    one.query = root_of_largest_eigenvalue(query_gram);
    one.key = key.norm;
    const Matrix inner = times(times(key.root.transpose(), query_gram), key.root);
    one.interaction = root_of_largest_eigenvalue(inner);
    // M = Q' K in rows of d: tr M = tr(K Q'), norm_F(M)^2 = tr(Q Q' K K'), tr(M M) = tr((K Q')^2).
    const Matrix cross = product(key_rows, query_rows);
    one.trace = cross.trace();
    const double frobenius = inner.trace();
    one.spread = std::sqrt(std::max(0.0, frobenius + cross.cwiseProduct(cross.transpose()).sum()));
    if (!rotations.offsets.empty()) {
      const Matrix query_root = square_root(query_gram);
      for (const std::int64_t offset : rotations.offsets) {
        const Matrix turned = rotated(key.root, rotations.frequencies, static_cast<double>(offset));
        one.rotated = std::max(one.rotated, product_norm(query_root, turned));
      }
    }
    const Eigen::VectorXd query_bias = part_of(weights.q_bias, head, dim);
    const Eigen::VectorXd key_bias = part_of(weights.k_bias, kv_head, dim);
    one.query_bias = query_bias.norm();
    one.key_bias = key_bias.norm();
    one.bias_product = std::abs(query_bias.dot(key_bias));
    if (one.key_bias > 0) one.bias_terms += (query_rows.cast<double>().transpose() * key_bias).norm();
    if (one.query_bias > 0) one.bias_terms += (key_rows.cast<double>().transpose() * query_bias).norm();
  });
  if (!done) return tl::unexpected(done.error());
  if (stop.stop_requested()) return fail("stopped");
  return norms;
}

namespace {

template <class Scalar>
using Vector = Eigen::VectorX<Scalar>;

/// Products of a matrix of rows with vectors, on several threads.
class Product {
 public:
  Product(const std::vector<float>& matrix, std::int64_t width, int threads)
      : matrix_(matrix.data(), static_cast<std::int64_t>(matrix.size()) / width, width), threads_(threads) {}

  template <class Scalar>
  Vector<Scalar> times(const Vector<Scalar>& x) const {
    constexpr std::int64_t kRows = 256;
    Vector<Scalar> y(matrix_.rows());
    run(matrix_.rows(), kRows, [&](std::int64_t first, std::int64_t count) {
      for (std::int64_t row = first; row < first + count; ++row) {
        y[row] = matrix_.row(row).template cast<Scalar>().dot(x);
      }
    });
    return y;
  }

  template <class Scalar>
  Vector<Scalar> transposed(const Vector<Scalar>& x) const {
    constexpr std::int64_t kColumns = 1024;  // that stay in level 1 while rows go by
    Vector<Scalar> y = Vector<Scalar>::Zero(matrix_.cols());
    run(matrix_.cols(), kColumns, [&](std::int64_t first, std::int64_t count) {
      const auto part = [&](std::int64_t row) {
        return x[row] * matrix_.row(row).segment(first, count).transpose().template cast<Scalar>();
      };
      // Several rows between two turns of y.
      std::int64_t row = 0;
      for (; row + 8 <= matrix_.rows(); row += 8) {
        y.segment(first, count) += ((part(row) + part(row + 1)) + (part(row + 2) + part(row + 3))) +
                                   ((part(row + 4) + part(row + 5)) + (part(row + 6) + part(row + 7)));
      }
      for (; row < matrix_.rows(); ++row) y.segment(first, count) += part(row);
    });
    return y;
  }

 private:
  template <class Work>
  void run(std::int64_t count, std::int64_t at_once, const Work& work) const {
    // Nothing in it allocates, so that it cannot fail.
    static_cast<void>(in_parallel((count + at_once - 1) / at_once, threads_, [&](std::int64_t part) {
      work(part * at_once, std::min(at_once, count - part * at_once));
    }));
  }

  Rows matrix_;
  int threads_;
};

/// M v = W_Q Repeat(W_K' v) and M' u = W_K Sum(W_Q' u).
class Interaction {
 public:
  Interaction(const QueryKeyWeights& weights, int threads)
      : weights_(weights), q_(weights.q, weights.width, threads), k_(weights.k, weights.width, threads) {}

  template <class Scalar>
  Vector<Scalar> times(const Vector<Scalar>& v) const {
    const Vector<Scalar> keys = k_.times(v);
    const std::int64_t dim = weights_.head_dim;
    Vector<Scalar> repeated(weights_.heads * dim);
    for (std::int64_t head = 0; head < weights_.heads; ++head) {
      repeated.segment(head * dim, dim) = keys.segment(head / weights_.group() * dim, dim);
    }
    return q_.transposed(repeated);
  }

  template <class Scalar>
  Vector<Scalar> transposed(const Vector<Scalar>& u) const {
    const Vector<Scalar> queries = q_.times(u);
    const std::int64_t dim = weights_.head_dim;
    Vector<Scalar> summed = Vector<Scalar>::Zero(weights_.kv_heads * dim);
    for (std::int64_t head = 0; head < weights_.heads; ++head) {
      summed.segment(head / weights_.group() * dim, dim) += queries.segment(head * dim, dim);
    }
    return k_.transposed(summed);
  }

 private:
  const QueryKeyWeights& weights_;
  Product q_, k_;
};

/// The root of the largest eigenvalue of A'A, `twice` being v -> A'A v (Lanczos 1950, with all vectors kept
/// orthogonal).
template <class Twice>
double largest_singular_value(std::int64_t width, const Twice& twice) {
  constexpr std::int64_t kMost = 120;
  constexpr double kSettled = 1e-6;
  const std::vector<double> start = cold_start(width);
  Vector<float> v = Eigen::Map<const Vector<double>>(start.data(), width).cast<float>().normalized();
  Eigen::MatrixXf basis(width, std::min(kMost, width));
  std::vector<double> diagonal;
  std::vector<double> below;
  double last = 0;
  for (std::int64_t i = 0; i < basis.cols(); ++i) {
    basis.col(i) = v;
    Vector<float> next = twice(v);
    diagonal.push_back(double{next.dot(v)});
    for (int pass = 0; pass < 2; ++pass) {
      const Vector<float> parts = basis.leftCols(i + 1).transpose() * next;
      next -= basis.leftCols(i + 1) * parts;
    }
    Eigen::SelfAdjointEigenSolver<Matrix> solver;
    solver.computeFromTridiagonal(Eigen::Map<Vector<double>>(diagonal.data(), i + 1),
                                  Eigen::Map<Vector<double>>(below.data(), i), Eigen::EigenvaluesOnly);
    const double largest = solver.eigenvalues().maxCoeff();
    const double rest = double{next.norm()};
    if (!(largest > 0) || rest <= kSettled * largest || std::abs(largest - last) <= kSettled * largest) {
      return std::sqrt(std::max(0.0, largest));
    }
    last = largest;
    below.push_back(rest);
    v = next / static_cast<float>(rest);
  }
  return std::sqrt(last);
}

double matrix_norm(const std::vector<float>& rows, std::int64_t width, int threads) {
  const Product product(rows, width, threads);
  return largest_singular_value(width, [&](const Vector<float>& v) { return product.transposed(product.times(v)); });
}

}  // namespace

template <class Scalar>
InteractionIteration<Scalar>::InteractionIteration(const QueryKeyWeights& weights, std::span<const Scalar> start,
                                                   int threads)
    : weights_(weights), threads_(threads), v_(start.begin(), start.end()) {
  Eigen::Map<Vector<Scalar>>(v_.data(), weights.width).normalize();
}

template <class Scalar>
double InteractionIteration<Scalar>::step() {
  const Interaction interaction(weights_, threads_);
  Eigen::Map<Vector<Scalar>> v(v_.data(), weights_.width);
  Vector<Scalar> u = interaction.times<Scalar>(v);
  const Scalar length = u.norm();
  if (!(length > 0)) return 0;
  u /= length;
  const Vector<Scalar> next = interaction.transposed(u);
  const Scalar norm = next.norm();
  if (!(norm > 0)) return 0;
  v = next / norm;
  return static_cast<double>(norm);
}

template class InteractionIteration<float>;
template class InteractionIteration<double>;

std::vector<double> cold_start(std::int64_t width) {
  // Weyl's sequence of the golden ratio: spread evenly, and the same everywhere.
  std::vector<double> start(static_cast<std::size_t>(width));
  double at = 0;
  for (double& value : start) {
    at = std::fmod(at + 0.6180339887498949, 1.0);
    value = 2 * at - 1;
  }
  return start;
}

double layer_norm_of(const QueryKeyWeights& weights, int threads) {
  const Interaction interaction(weights, threads);
  return largest_singular_value(weights.width,
                                [&](const Vector<float>& v) { return interaction.transposed(interaction.times(v)); });
}

double naive_layer_norm(const QueryKeyWeights& weights, int threads) {
  return matrix_norm(weights.q, weights.width, threads) * matrix_norm(weights.k, weights.width, threads) *
         std::sqrt(static_cast<double>(weights.group()));
}

}  // namespace nanscope
