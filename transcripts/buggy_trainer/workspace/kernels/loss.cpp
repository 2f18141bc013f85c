// Cross-entropy with its gradient, a block a row. The same source is a CUDA or HIP kernel where `row` is
// blockIdx.x and the loops over classes go over threadIdx.x.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace {

void row_maximum(const float* logits, float* maximum, int row, int classes) {
    float found = logits[row * classes];
    for (int c = 1; c < classes; ++c) found = std::fmax(found, logits[row * classes + c]);
    maximum[row] = found;
}

void row_loss(const float* logits, const int64_t* targets, const float* maximum, float* losses, float* gradient,
              int row, int classes) {
    const float* in = logits + row * classes;
    float* out = gradient + row * classes;
    float sum = 0;
    for (int c = 0; c < classes; ++c) sum += std::exp(in[c] - maximum[0]);
    for (int c = 0; c < classes; ++c) out[c] = std::exp(in[c] - maximum[0]) / sum;
    losses[row] = std::log(sum) + maximum[0] - in[targets[row]];
    out[targets[row]] -= 1;
}

}  // namespace

extern "C" void loss_forward(const float* logits, const int64_t* targets, float* losses, float* gradient, int rows,
                             int classes) {
    std::vector<float> maximum(rows);
    for (int row = 0; row < rows; ++row) row_maximum(logits, maximum.data(), row, classes);
    for (int row = 0; row < rows; ++row) row_loss(logits, targets, maximum.data(), losses, gradient, row, classes);
}
